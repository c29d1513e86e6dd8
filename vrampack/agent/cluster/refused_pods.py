"""Publishes the pods to be evicted in an annotation of the agent's own Node: the extender reads it and evicts them.

The agent has no right to evict: with that right, one stolen token of an agent would reach every pod of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Literal, Protocol

from vrampack.agent.cluster.own_node import MetadataEntries
from vrampack.cards import well_known
from vrampack.cards.refused_pods import write_refused

RefusalSource = Literal["start", "use", "health"]
"""What refuses a pod: the fence at its start, the check of its memory use, or the health of its card."""


class DesiredEntries(Protocol):
    """The only method of `OwnNode` needed here."""

    def set_desired(self, entries: MetadataEntries) -> None: ...


class RefusedPodsPublisher:
    """Writes the annotation only when it changes: every change to a Node wakes every pending pod."""

    def __init__(self) -> None:
        self._node: DesiredEntries | None = None
        self._by_source: dict[RefusalSource, dict[str, str]] = {}
        self._published: dict[str, str] | None = None

    def attach_node(self, node: DesiredEntries) -> None:
        """Set the Node to write to; call it before `set_reasons`."""
        self._node = node

    def set_reasons(self, source: RefusalSource, reasons: Mapping[str, str]) -> None:
        """Replace the pods that `source` refuses: the reason by uid, most urgent first."""
        self._by_source[source] = dict(reasons)
        merged = _merge_by_turns(self._by_source.values())
        if merged != self._published and self._node is not None:
            self._published = merged
            self._node.set_desired(
                {("annotations", well_known.NODE_REFUSED): write_refused(merged) if merged else None}
            )


def _merge_by_turns(sources: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """One pod of each source in turn: the list is bounded, and many pods of one source must not keep out those of another."""
    merged: dict[str, str] = {}
    for row in zip_longest(*(each.items() for each in sources)):
        for item in row:
            if item is not None:
                merged.setdefault(*item)
    return merged
