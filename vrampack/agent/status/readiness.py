"""When the agent is ready: kubelet can start a new pod with a card here, or the node has no cards and should have none.

A rollout of the DaemonSet replaces the next node's agent only when this node's new agent is ready, so a configuration with
which no pod could start stops at the first node. A node without cards and without a driver must never stop a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vrampack.agent.inventory.advertisement import Advertised


@dataclass(frozen=True, slots=True)
class DriverState:
    """What discovery knows about the driver."""

    problem: str
    """Why the driver cannot be asked now; empty when it can."""
    is_absent: bool
    """Whether the node has no driver, as far as can be seen."""
    unhealthy_reasons: Mapping[str, str]
    """Why cards are unhealthy, by uuid."""


def find_unready_reason(advertised: Advertised, driver: DriverState, *, registration_problem: str) -> str:
    """Why no new pod could start on this node; empty when one could, and on a node without cards.

    `registration_problem`: why kubelet does not have our registration; empty when it has.
    """
    if not advertised.is_discovered:
        return f"the cards of this node are not known yet{': ' * bool(driver.problem)}{driver.problem}"
    if not advertised.cards:
        return "" if driver.is_absent else advertised.problem
    if advertised.problem:
        return advertised.problem
    if not any(card.healthy for card in advertised.cards):
        reasons = ", ".join(f"{uuid}: {reason}" for uuid, reason in sorted(driver.unhealthy_reasons.items()))
        return f"every card is unhealthy: {reasons}"
    return registration_problem
