"""Which policy decides: the part of the configuration that people tune. No file is read here."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PolicyName = Literal["binpack", "spread", "node-binpack"]


class PolicyTuning(BaseModel):
    """The default policy and what a pod may choose instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: PolicyName = "binpack"
    """Where pods go that say nothing. Change it to `spread` if speed matters more than free cards, to
    `node-binpack` if an autoscaler should find empty nodes to remove."""

    allowed: tuple[PolicyName, ...] = Field(default=(), max_length=3)
    """Policies a pod may choose by its annotation `vrampack.dev/policy`. Empty: the annotation is ignored."""

    def choose_policy(self, wish: str | None) -> PolicyName:
        """A pod's wish within what is allowed, else the default."""
        return next((name for name in self.allowed if name == wish), self.default)
