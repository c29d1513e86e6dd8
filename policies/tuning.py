"""Which policy decides: the part of the configuration that people tune. No file is read here."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from policies.registry import POLICIES


def _check_policy_name(name: str) -> str:
    if name not in POLICIES:
        *others, last = map(repr, POLICIES)
        raise PydanticCustomError("policy_name", "Input should be {names}", {"names": f"{', '.join(others)} or {last}"})
    return name


PolicyName = Annotated[str, AfterValidator(_check_policy_name)]
"""A key of `POLICIES`."""


class PolicyTuning(BaseModel):
    """The default policy and what a pod may choose instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: PolicyName = "tessellate"
    """Where pods go that say nothing. Change it to `spread` if speed matters more than free cards, to
    `node-binpack` if an autoscaler should find empty nodes to remove, to `binpack` if the order of nodes should depend on
    nothing but their cards."""

    allowed: tuple[PolicyName, ...] = Field(default=(), max_length=len(POLICIES))
    """Policies a pod may choose by its annotation `vrampack.dev/policy`. Empty: the annotation is ignored."""

    def list_policies(self) -> tuple[PolicyName, ...]:
        """Those that decide for some pod."""
        return (self.default, *self.allowed)

    @property
    def reads_hosts(self) -> bool:
        """Whether any of them reads what hosts have left."""
        return any(POLICIES[name].READS_HOSTS for name in self.list_policies())

    def choose_policy(self, wish: str | None) -> PolicyName:
        """A pod's wish within what is allowed, else the default."""
        return next((name for name in self.allowed if name == wish), self.default)
