"""`profiles:` of the extender's configuration: which policy ranks for which pods.

`docs/configuration.md` says how one is chosen.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extender.rule_settings import MAX_ENTRIES, PodSelectorSettings
from policies.tuning import (
    NO_BOUNDS,
    OWN_WEIGHTS,
    PolicyName,
    RankingBounds,
    WeightSettings,
    tune_policy,
)
from vrampack.cards.profiles import Profile
from vrampack.config.strict import StrictModel

ProfileName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, examples=["serving"])]
SchedulerPattern = Annotated[str, Field(pattern=r"^[-a-z0-9.*]+$", max_length=253, examples=["batch"])]


class ProfileSettings(StrictModel):
    """One profile."""

    name: ProfileName
    """Shown in the log and by `vrampack explain`."""

    policy: PolicyName
    """Which policy ranks for its pods."""

    weights: WeightSettings = OWN_WEIGHTS
    """Numbers of that policy that are not to be its own."""

    bounds: RankingBounds = NO_BOUNDS
    """What cards should not be past, for its pods."""

    users: PodSelectorSettings = PodSelectorSettings()
    """Which pods; the first profile that matches a pod is its own."""

    schedulers: tuple[SchedulerPattern, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Only pods of these `schedulerName`s, `*` for any part of one; empty for all."""

    by_annotation: bool = False
    """Whether any pod may choose it by the annotation `vrampack.dev/policy`."""

    def build_profile(self) -> Profile:
        policy = tune_policy(self.policy, self.weights, self.bounds)
        return Profile(self.name, policy, self.users.build_selector(), self.schedulers, self.by_annotation)
