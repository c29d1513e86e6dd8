"""Soft reservations for the engine: places that a test takes and gives up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from policies.engine.change_log import NodeChangeLog
from policies.trial_placement import HeldCards, Placement
from vrampack.cards.request import CardRequest


class FakeReservations:
    """At most one for each pod."""

    def __init__(self) -> None:
        self._placements: dict[str, tuple[Placement, CardRequest]] = {}
        self._by_node: dict[str, list[HeldCards]] = {}
        self._changes = NodeChangeLog()

    def put(self, uid: str, placement: Placement | None, request: CardRequest = CardRequest(4)) -> None:  # noqa: B008 - it is frozen
        """Replace the reservation of this pod; None ends it."""
        changed = [self._placements.pop(uid)[0].node_name] if uid in self._placements else []
        if placement is not None:
            self._placements[uid] = placement, request
            changed.append(placement.node_name)
        for name in changed:
            self._by_node[name] = self._list_cards(name, None)
            self._changes.record_change(name)

    @property
    def generation(self) -> int:
        return self._changes.generation

    def list_nodes_changed_since(self, generation: int) -> Collection[str] | None:
        return self._changes.list_nodes_changed_since(generation)

    def list_reserved_nodes(self) -> Collection[str]:
        return [name for name, reserved in self._by_node.items() if reserved]

    def list_reserved_cards(self, name: str, uid: str | None = None) -> Sequence[HeldCards]:
        own = None if uid is None else self._placements.get(uid)
        return self._list_cards(name, uid) if own and own[0].node_name == name else self._by_node.get(name, ())

    def list_placements(self, uid: str) -> Sequence[Placement]:
        return [self._placements[uid][0]] if uid in self._placements else []

    def _list_cards(self, name: str, but_uid: str | None) -> list[HeldCards]:
        return [
            (placement.cards, request)
            for uid, (placement, request) in self._placements.items()
            if placement.node_name == name and uid != but_uid
        ]
