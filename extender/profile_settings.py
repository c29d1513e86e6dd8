"""`profiles:` of the extender's configuration: which policy ranks for which pods.

`docs/configuration.md` says how one is chosen.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from extender.policy_settings import (
    NO_BOUNDS,
    OWN_WEIGHTS,
    PolicyName,
    RankingBounds,
    WeightSettings,
    tune_policy,
)
from extender.rule_settings import MAX_ENTRIES, PodSelectorSettings
from vrampack.cards.profiles import Profile
from vrampack.config.strict import StrictModel

ProfileName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, examples=["serving"])]
SchedulerPattern = Annotated[str, Field(pattern=r"^[-a-z0-9.*]+$", max_length=253, examples=["batch"])]


class ProfileSettings(StrictModel):
    """One profile."""

    name: ProfileName
    """Shown in the log and by `vrampack explain`."""

    policy: PolicyName
    """The policy that ranks nodes for its pods."""

    weights: WeightSettings = OWN_WEIGHTS
    """Weights of that policy that replace its defaults."""

    bounds: RankingBounds = NO_BOUNDS
    """Limits that cards should stay within when its pods are placed."""

    users: PodSelectorSettings = PodSelectorSettings()
    """Which pods it is for. A pod gets the first profile that matches it."""

    schedulers: tuple[SchedulerPattern, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Only pods with one of these `schedulerName`s; `*` stands for any part of a name. Empty: all."""

    by_annotation: bool = False
    """Whether any pod may choose this profile by the annotation `vrampack.dev/policy`."""

    def build_profile(self) -> Profile:
        policy = tune_policy(self.policy, self.weights, self.bounds)
        return Profile(self.name, policy, self.users.build_selector(), self.schedulers, self.by_annotation)
