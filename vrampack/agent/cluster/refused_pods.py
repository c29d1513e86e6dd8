"""The pods that may not start here, or not go on, as they stand on the own Node: the extender reads it there and evicts.

The agent has no right to evict: with a stolen token of one it would reach every pod of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from vrampack.agent.cluster.own_node import MetadataEntries
from vrampack.cards import well_known
from vrampack.cards.refused_pods import write_refused

RefusalSource = Literal["start", "use", "health"]
"""Who has something against a pod: the fence before a start, the look at what running ones use, or its card's health."""


class RefusedPodsPublisher:
    """Writes the annotation when it changes, and not otherwise: every change of a Node wakes every pending pod."""

    def __init__(self, set_desired: Callable[[MetadataEntries], None]) -> None:
        self._set_desired = set_desired
        self._by_source: dict[RefusalSource, dict[str, str]] = {}
        self._published: dict[str, str] | None = None

    def set_reasons(self, source: RefusalSource, reasons: Mapping[str, str]) -> None:
        """All that `source` has against pods from now on, by uid, most urgent first."""
        self._by_source[source] = dict(reasons)
        merged: dict[str, str] = {}
        for each in self._by_source.values():
            merged |= each
        if merged != self._published:
            self._published = merged
            self._set_desired({("annotations", well_known.NODE_REFUSED): write_refused(merged) if merged else None})
