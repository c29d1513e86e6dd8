"""The measured use of cards: the Leases that agents write, kept by node for `/inspect` to show.

    Lease written --> kept --> not renewed for its duration --> no longer shown

Placement does not depend on it: without Leases, or while they cannot be read, every verb answers as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from extender.metrics import ExtenderMetrics
from vrampack.cards import well_known
from vrampack.cards.card_usage import CardUsage, name_usage_lease, read_usage
from vrampack.cards.records import RecordError
from vrampack.kube.objects import LeaseObject
from vrampack.kube.reflector import ObjectReference

log = logging.getLogger(__name__)

DEFAULT_DURATION_SECONDS = 600
"""For a Lease that does not give its duration."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One node's Lease as last seen."""

    cards: Mapping[str, CardUsage]
    good_until: float
    """By our own clock, counted from when we saw the write: clocks of nodes differ."""
    version: str
    """The renew time in the Lease: a list that shows the same write again renews nothing."""


class UsageLeases:
    """A reflector's sink for the Leases of the agents' namespace."""

    def __init__(self, metrics: ExtenderMetrics, *, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._usage_by_node: dict[str, NodeUsage] = {}
        self._listed: set[str] = set()

    def get_usage(self, node_name: str) -> Mapping[str, CardUsage]:
        """The usage by card uuid; empty when nothing, or nothing recent, is known."""
        known = self._usage_by_node.get(node_name)
        return known.cards if known is not None and self._clock() < known.good_until else {}

    def on_list_started(self, reason: str) -> None:
        self._metrics.relists.labels("leases", reason).inc()
        self._listed = set()

    def on_page(self, objects: Sequence[LeaseObject]) -> None:
        for obj in objects:
            self._listed.add(obj.metadata.name)
            self.on_changed(obj)

    def on_list_finished(self) -> None:
        kept = {node: usage for node, usage in self._usage_by_node.items() if name_usage_lease(node) in self._listed}
        self._usage_by_node = kept

    def on_changed(self, obj: LeaseObject) -> None:
        node_name, version = _find_node_name(obj), obj.metadata.resource_version
        if node_name is None:
            return
        known = self._usage_by_node.get(node_name)
        if known is not None and version and known.version == version:
            return
        try:
            cards = read_usage((obj.metadata.annotations or {}).get(well_known.USAGE, ""))
        except RecordError as error:
            log.warning('usage not read node=%s problem=annotation "%s": %s', node_name, well_known.USAGE, error)
            self._usage_by_node.pop(node_name, None)
            return
        seconds = obj.spec.lease_duration_seconds or DEFAULT_DURATION_SECONDS
        self._usage_by_node[node_name] = NodeUsage(cards, self._clock() + seconds, version)

    def on_deleted(self, obj: LeaseObject) -> None:
        node_name = _find_node_name(obj)
        if node_name is not None:
            self._usage_by_node.pop(node_name, None)

    def on_malformed(self, reference: ObjectReference, text: str) -> None:
        log.warning("lease not decoded lease=%s error=%s", reference, text)
        self._listed.add(reference.name)

    def on_contact(self) -> None:
        """Ignored: each Lease says how long it is valid."""


def _find_node_name(obj: LeaseObject) -> str | None:
    """The Lease's node. None for another program's Lease, such as the scheduler's, or if the holder is not the node in its name."""
    name, holder = obj.metadata.name, obj.spec.holder_identity
    return holder if holder and name == name_usage_lease(holder) else None
