"""The pods that agents refuse to start or to keep running: the annotation `vrampack.dev/refused`, as the watch shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.refused_pods import read_refused


@dataclass(frozen=True, slots=True)
class ReportedRefusal:
    """One pod that the agent of a node refuses."""

    node_name: str
    uid: str
    reason: str
    seen_at: float
    """When this process first saw it, by its own clock: a node's clock may be wrong, and its agent may lie."""


class ReportedRefusals:
    """By node and pod. Fed by the sink of nodes, read by the evictor."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._texts: dict[str, str] = {}
        self._by_node: dict[str, dict[str, ReportedRefusal]] = {}

    def update_node(self, name: str, text: str | None) -> tuple[str, ...]:
        """The node has this annotation now. Returns the problems of entries that cannot be read."""
        if text is None:
            self.remove_node(name)
            return ()
        reasons, problems = read_refused(text)
        if self._texts.get(name) != text:
            self._texts[name] = text
            known, now = self._by_node.get(name, {}), self._clock()
            self._by_node[name] = {
                uid: ReportedRefusal(name, uid, reason, known[uid].seen_at if uid in known else now)
                for uid, reason in reasons.items()
            }
        return tuple(f'annotation "{well_known.NODE_REFUSED}": {problem}' for problem in problems)

    def remove_node(self, name: str) -> None:
        self._texts.pop(name, None)
        self._by_node.pop(name, None)

    def list_refusals(self) -> list[ReportedRefusal]:
        """All of them, the oldest first."""
        found = [each for of_node in self._by_node.values() for each in of_node.values()]
        return sorted(found, key=lambda each: (each.seen_at, each.node_name, each.uid))
