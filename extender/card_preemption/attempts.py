"""What is remembered of a waiting pod, and of a plan that is carried out for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.card_preemption.card_planner import CardPlan
from vrampack.cards.pod import Pod

IN_VAIN_SECONDS = 60.0
"""How long after the end of its victims a pod may take to be bound, and how long a begun plan tries to evict the others."""


@dataclass(slots=True)
class PlanAttempt:
    """What is remembered of one waiting pod."""

    next_at: float = 0.0
    failures: int = 0
    withdrawals: int = 0
    """Plans in a row of which no victim might be evicted."""
    awaited_node: str = ""
    """Where the pod waits for the end of pods, by its last plan."""
    awaited_since: float = 0.0
    avoided_until: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Service:
    """A plan that is carried out."""

    plan: CardPlan
    began_at: float
    left: list[Pod]
    """Victims that are not evicted yet."""
    is_nominated: bool = False
    """Whether the pod is, or may be, nominated to the node."""
    is_begun: bool = False
    """Whether a victim is, or may be, evicted."""
    gone_at: float | None = None
    """When the last victim was gone."""

    @property
    def deadline(self) -> float:
        if self.gone_at is not None:
            return self.gone_at + IN_VAIN_SECONDS
        return self.began_at + self.plan.grace_seconds + IN_VAIN_SECONDS
