"""Which policy decides: the part of the configuration that people tune. No file is read here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from policies.registry import POLICIES
from vrampack.cards.request import ProfileChoice


def _check_policy_name(name: str) -> str:
    if name not in POLICIES:
        *others, last = map(repr, POLICIES)
        raise PydanticCustomError("policy_name", "Input should be {names}", {"names": f"{', '.join(others)} or {last}"})
    return name


PolicyName = Annotated[str, AfterValidator(_check_policy_name), Field(json_schema_extra={"enum": [*POLICIES]})]
"""A key of `POLICIES`."""


class PolicyTuning(BaseModel):
    """The default policy and what a pod may choose instead."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    default: PolicyName = "tessellate"
    """Where pods go that say nothing. Change it to `spread` if speed matters more than free cards, to
    `node-binpack` if an autoscaler should find empty nodes to remove, to `binpack` if the order of nodes should depend on
    nothing but their cards."""

    allowed: tuple[PolicyName, ...] = Field(default=(), max_length=len(POLICIES))
    """Policies a pod may choose by its annotation `vrampack.dev/policy`. Empty: the annotation is ignored."""

    shadow: PolicyName | None = None
    """A second policy that is asked about decisions once they are answered; metrics say how often it would take another node.
    Set it before a change of `default`."""

    def list_policies(self) -> tuple[PolicyName, ...]:
        """Those that are asked about some pod, but for the ones of profiles."""
        return (self.default, *self.allowed, *(() if self.shadow is None else (self.shadow,)))

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> PolicyName:
        """A pod's wish within what is allowed, else that of its profile, else the default."""
        otherwise = self.default if profile is None else profile.policy
        return next((name for name in self.allowed if name == wish), otherwise)


@dataclass(frozen=True, slots=True)
class PolicySelection:
    """A tuning, and the policies of profiles."""

    tuning: PolicyTuning
    profile_policies: tuple[PolicyName, ...] = ()

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> PolicyName:
        """As the tuning chooses."""
        return self.tuning.choose_policy(wish, profile)

    def list_policies(self) -> tuple[PolicyName, ...]:
        """Those that are asked about some pod."""
        return (*self.tuning.list_policies(), *self.profile_policies)

    @property
    def reads_hosts(self) -> bool:
        """Whether any of them reads what hosts have left."""
        return any(POLICIES[name].READS_HOSTS for name in self.list_policies())
