"""Nodes as they would be if all that is promised there were held: made once, and kept until node or promises change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from policies.layout import filled
from vrampack.cards.node import Node
from vrampack.cards.outline import Outline, outline
from vrampack.cards.request import Request

Place = tuple[Collection[int], Request]
"""Cards of a node by index, and what is asked of each of them."""
FEW = 64
"""So many are kept whatever is promised."""


@dataclass(frozen=True, slots=True)
class Filled:
    """One of them, and what it is made of."""

    before: Node
    places: Sequence[Place]
    node: Node
    outline: Outline


class Beside:
    """By node name. Promises on one node are one object as long as they are the same."""

    def __init__(self) -> None:
        self._filled: dict[str, Filled] = {}

    def find(self, node: Node, places: Sequence[Place]) -> Filled:
        """The node with these places held as well."""
        known = self._filled.get(node.name)
        if known is not None and known.before is node and known.places is places:
            return known
        full = node
        for indices, request in places:
            full = filled(full, indices, request)
        self._filled[node.name] = found = Filled(node, places, full, outline(full))
        return found

    def forget(self, promised: Mapping[str, object]) -> None:
        """Keep what is promised still, if that would be much less."""
        if len(self._filled) > 2 * len(promised) + FEW:
            self._filled = {name: each for name, each in self._filled.items() if name in promised}
