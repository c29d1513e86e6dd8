"""The policies as profiles tune them, each built when it first ranks."""

from __future__ import annotations

from collections.abc import Mapping

from policies.adjusted_policy import adjust_policy
from policies.policy import Policy
from vrampack.cards.tuned_policy import TunedPolicy


class AdjustedPolicies(dict[TunedPolicy, Policy]):
    """Policies by name and numbers. A look-up adds a missing one; only configurations name new ones, so it stays small."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        super().__init__()
        self._policies = policies

    def __missing__(self, tuned: TunedPolicy) -> Policy:
        policy = self[tuned] = adjust_policy(self._policies[tuned.name], tuned)
        return policy
