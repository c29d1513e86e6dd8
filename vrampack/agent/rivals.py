"""Other plugins on the node: one that offers the same cards under another name, one that registered our resource.

Neither shows itself to a plugin. NVIDIA's is seen by what the node offers; a second registrant of ours by kubelet, which
keeps the last list that anybody sent: the node then says another number of units than we do. When one of the two goes,
kubelet forgets whichever registered last and tells nobody: the node then has no healthy unit, and we register again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from vrampack.agent.board import Board
from vrampack.cards.units import parse_quantity

log = logging.getLogger(__name__)

NVIDIA = ("nvidia.com/gpu", "nvidia.com/mig-")
"""What NVIDIA's device plugin offers: whole cards, shared replicas, MIG instances by profile."""
LOOK_SECONDS = 5.0
DIFFERENT_SECONDS = 60.0
"""kubelet writes a new number into the node after 10 s, by default, and the watch shows it soon after."""

LOST_SECONDS = (30.0, 600.0)
"""kubelet has nothing of ours for so long: first and longest time until we register again, for it may be dead."""


class Rivals:
    """Objects to offering cards as long as somebody else has a hand on them."""

    def __init__(
        self,
        board: Board,
        *,
        resource: str,
        are_divided: bool,
        is_registered: Callable[[], bool],
        register_again: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._resource = resource
        self._are_divided = are_divided
        """Whether the settings say which cards are ours and which are the others'."""
        self._is_registered = is_registered
        self._register_again = register_again
        self._clock = clock
        self._offered: Mapping[str, str] = {}
        self._allocatable: Mapping[str, str] = {}
        self._different_since: float | None = None
        self._lost_since: float | None = None
        self._patience = LOST_SECONDS[0]

    def node_offers(self, quantities: Mapping[str, str], allocatable: Mapping[str, str]) -> None:
        """What the node has of each resource, and how much of it is healthy, by the API server."""
        self._offered = quantities
        self._allocatable = allocatable
        other = next((name for name in sorted(quantities) if name.startswith(NVIDIA) and _count(quantities[name])), "")
        text = f"this node offers {other} as well; name the cards of each in cards.include or cards.exclude"
        self._board.object("others", text if other and not self._are_divided else "")
        self.look()

    async def run(self) -> None:
        """Look again now and then: that a difference lasts is no event. Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """One look at what the node has of our resource."""
        self._look_for_loss()
        listed = sum(card.units for card in self._board.offer.listed)
        seen = self._offered.get(self._resource)
        if not self._is_registered() or seen is None or _count(seen) == listed:
            self._different_since = None
            self._board.object("resource", "")
            return
        now = self._clock()
        self._different_since = now if self._different_since is None else self._different_since
        if now - self._different_since >= DIFFERENT_SECONDS:
            text = f"the node has {seen} of {self._resource} and this agent lists {listed}: another plugin registered it too"
            self._board.object("resource", text)

    def _look_for_loss(self) -> None:
        healthy = sum(card.units for card in self._board.offer.listed if card.healthy)
        if not self._is_registered() or not healthy or _count(self._allocatable.get(self._resource, "0")):
            self._lost_since = None
            self._patience = LOST_SECONDS[0] if self._is_registered() else self._patience
            return
        now = self._clock()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if now - self._lost_since >= self._patience:
            log.warning("the node has none of %s although kubelet listens to us, registering again", self._resource)
            self._lost_since, self._patience = None, min(LOST_SECONDS[1], self._patience * 2)
            self._register_again()


def _count(quantity: str) -> float | None:
    """A number of devices: the API server writes 1000 of them as `1k`. None for what is no number."""
    try:
        return float(parse_quantity(quantity))
    except ValueError:
        return None
