"""Other plugins on the node: one that offers the same cards under another name, one that registered our resource.

Neither shows itself to a plugin. NVIDIA's is seen by what the node offers; a second registrant of ours by kubelet, which
keeps the last list that anybody sent: the node then says another number of units than we do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from agent.board import Board

NVIDIA = ("nvidia.com/gpu", "nvidia.com/mig-")
"""What NVIDIA's device plugin offers: whole cards, shared replicas, MIG instances by profile."""
LOOK_SECONDS = 5.0
DIFFERENT_SECONDS = 60.0
"""kubelet writes a new number into the node after 10 s, by default, and the watch shows it soon after."""


class Rivals:
    """Objects to offering cards as long as somebody else has a hand on them."""

    def __init__(
        self,
        board: Board,
        *,
        resource: str,
        are_divided: bool,
        is_registered: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._resource = resource
        self._are_divided = are_divided
        """Whether the settings say which cards are ours and which are the others'."""
        self._is_registered = is_registered
        self._clock = clock
        self._offered: Mapping[str, str] = {}
        self._different_since: float | None = None

    def node_offers(self, quantities: Mapping[str, str]) -> None:
        """What the node has of each resource, by the API server."""
        self._offered = quantities
        other = next((name for name in sorted(quantities) if name.startswith(NVIDIA) and quantities[name] != "0"), "")
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
        listed = sum(card.units for card in self._board.offer.cards)
        seen = self._offered.get(self._resource)
        if not self._is_registered() or seen is None or seen == str(listed):
            self._different_since = None
            self._board.object("resource", "")
            return
        now = self._clock()
        self._different_since = now if self._different_since is None else self._different_since
        if now - self._different_since >= DIFFERENT_SECONDS:
            text = f"the node has {seen} of {self._resource} and this agent lists {listed}: another plugin registered it too"
            self._board.object("resource", text)
