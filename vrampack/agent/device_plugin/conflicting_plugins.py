"""Detects other plugins on the node: one that offers the same cards under another name, or one that registered our resource.

kubelet tells a plugin about neither. NVIDIA's plugin shows in the node's resources. A second plugin with our resource shows because
kubelet keeps the last list that any of them sent: the node then has another number of units than we sent. When one of the two ends,
kubelet silently drops the registration made last: the node then has no healthy unit, and we register again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.cards.units import parse_quantity

log = logging.getLogger(__name__)

NVIDIA_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")
"""What NVIDIA's device plugin offers: whole cards, shared replicas, MIG instances by profile."""
CURE = (
    "with NVIDIA's GPU Operator, label the node nvidia.com/gpu.deploy.device-plugin=false; without it, remove that plugin from the node; or name "
    "the cards of each in cards.include or cards.exclude"
)
CHECK_INTERVAL_SECONDS = 5.0
MISMATCH_SECONDS = 60.0
"""kubelet writes a new number into the Node after 10 s by default, and the watch shows it soon after."""

REREGISTER_SECONDS = (30.0, 600.0)
"""How long kubelet may have none of our units before we register again, first and longest; kubelet may be down."""


class ConflictingPlugins:
    """Keeps the node from offering cards while another plugin uses them."""

    def __init__(
        self,
        advertisement: Advertisement,
        *,
        resource: str,
        are_cards_selected: bool,
        is_registered: Callable[[], bool],
        register_again: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._advertisement = advertisement
        self._resource = resource
        self._are_cards_selected = are_cards_selected
        """Whether the settings divide the cards between us and another plugin."""
        self._is_registered = is_registered
        self._register_again = register_again
        self._clock = clock
        self._capacity: Mapping[str, str] = {}
        self._allocatable: Mapping[str, str] = {}
        self._mismatch_since: float | None = None
        self._lost_since: float | None = None
        self._reregister_seconds = REREGISTER_SECONDS[0]

    def update_node_resources(self, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> None:
        """The node's capacity and allocatable of each resource, as the API server shows them."""
        self._capacity = capacity
        self._allocatable = allocatable
        other = next(
            (name for name in sorted(capacity) if name.startswith(NVIDIA_RESOURCES) and _parse_count(capacity[name])),
            "",
        )
        text = f"this node offers {other} as well; {CURE}"
        self._advertisement.block("others", text if other and not self._are_cards_selected else "")
        self.check_resources()

    async def run(self) -> None:
        """Check periodically, until cancelled: no event says that a difference lasts."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            self.check_resources()

    def check_resources(self) -> None:
        """Check once how much of our resource the node has."""
        self._check_lost()
        listed = sum(card.units for card in self._advertisement.current.listed_cards)
        seen = self._capacity.get(self._resource)
        if not self._is_registered() or seen is None or _parse_count(seen) == listed:
            self._mismatch_since = None
            self._advertisement.block("resource", "")
            return
        now = self._clock()
        self._mismatch_since = now if self._mismatch_since is None else self._mismatch_since
        if now - self._mismatch_since >= MISMATCH_SECONDS:
            text = f"the node has {seen} of {self._resource} and this agent lists {listed}: another plugin registered it too"
            self._advertisement.block("resource", text)

    def _check_lost(self) -> None:
        healthy = sum(card.units for card in self._advertisement.current.listed_cards if card.healthy)
        if not self._is_registered() or not healthy or _parse_count(self._allocatable.get(self._resource, "0")):
            self._lost_since = None
            self._reregister_seconds = REREGISTER_SECONDS[0] if self._is_registered() else self._reregister_seconds
            return
        now = self._clock()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if now - self._lost_since >= self._reregister_seconds:
            log.warning("registration lost resource=%s", self._resource)
            self._lost_since, self._reregister_seconds = None, min(REREGISTER_SECONDS[1], self._reregister_seconds * 2)
            self._register_again()


def _parse_count(quantity: str) -> float | None:
    """Parse a number of devices, which the API server may write as `1k`; None when it is not a number."""
    try:
        return float(parse_quantity(quantity))
    except ValueError:
        return None
