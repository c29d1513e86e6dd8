"""`injection: ids`, for clusters that can have no admission: a pod's cards are those of the device ids that kubelet took.

Nobody could tell kubelet which card a pod was given, and `Allocate` has answered with the card of the ids. So before a
container starts, its pod's record is made to say that card, or the container is refused. A pod whose environment
comes from its annotations needs none of this, in either mode.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import ContainerStart
from vrampack.agent.inventory.advertisement import Advertisement
from vrampack.agent.kubelet.device_ids import count_units_by_card
from vrampack.cards import well_known
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.env_injection import CONTAINER_UNITS_VARIABLE
from vrampack.cards.node import Card, CardFacts, DeviceNaming, NodeFacts, build_node
from vrampack.cards.records import Record, read_record, write_record
from vrampack.cards.request import PodRequest
from vrampack.cards.units import compute_limit_mib


@dataclass(frozen=True, slots=True)
class CorrectedStart:
    """A start whose pod has the record that its ids call for."""

    start: ContainerStart
    correction: Mapping[str, str]
    """Annotations to be written before it starts; empty when the record said so already."""


class IdsMode:
    """The node's side of `injection: ids`: what `Allocate` answers, and what a record must say before a start."""

    def __init__(self, advertisement: Advertisement, *, unit_mib: int) -> None:
        self._advertisement = advertisement
        self._unit_mib = unit_mib
        self.device_naming: DeviceNaming = "uuid"
        """As the node's cards were last published."""

    def build_env(self, ids: Iterable[str]) -> Mapping[str, str]:
        """What `Allocate` answers for these ids: their cards, and the container's share of them."""
        units = count_units_by_card(ids) or {}
        cards = [card for card in self._advertisement.current.cards if card.uuid in units]
        limits = [compute_limit_mib(card.memory_mib, units[card.uuid or ""], max(card.units, 1)) for card in cards]
        prefix = f"{well_known.CDI_KIND}=" if self.device_naming == "cdi" else ""
        env = {
            "NVIDIA_VISIBLE_DEVICES": ",".join(f"{prefix}{card.uuid}" for card in cards) or "void",
            "NVIDIA_GPU_MEMORY_LIMIT": str(min(limits, default=0)),
            CONTAINER_UNITS_VARIABLE: str(sum(units.values())),
            well_known.GPUSHARE_DEV: str(cards[0].units if cards else 0),
        }
        return env | ({well_known.GPUSHARE_IDX: str(cards[0].index)} if len(cards) == 1 else {})

    def correct_start(self, start: ContainerStart) -> CorrectedStart:
        """The start as its ids have it. Raises `RefusedStartError` when they cannot be what the pod asked for."""
        request, ids = start.pod.pod.request, count_units_by_card(start.allocation.device_ids)
        if request is None or ids is None:
            return CorrectedStart(start, {})
        _check_ids(start, request, ids)
        record = start.pod.pod.record
        if isinstance(record, Record) and record.is_ours and {share.uuid for share in record.shares} == ids.keys():
            return CorrectedStart(start, {})
        cards = tuple(_to_card(each) for each in self._advertisement.current.cards)
        facts = NodeFacts(start.pod.pod.node_name, unit_mib=self._unit_mib, devices=self.device_naming, injection="ids")
        node = build_node(facts, cards, unit_mib=self._unit_mib)
        allocation = allocate_cards(node, [card for card in cards if card.uuid in ids], request)
        correction = write_record(allocation, request, node, now_ns=time.time_ns())
        annotations = {**_without_record(start.pod.annotations), **correction}
        pod = replace(start.pod.pod, record=read_record(annotations, request))
        return CorrectedStart(replace(start, pod=replace(start.pod, pod=pod, annotations=annotations)), correction)


def _check_ids(start: ContainerStart, ask: PodRequest, ids: Mapping[str, int]) -> None:
    """Kubelet counts ids, not cards: they may be of more cards than one, or of fewer than were asked for."""
    own = next(
        (each.units // ask.card_request.count for each in ask.containers if each.name == start.allocation.container), 0
    )
    if len(ids) != ask.card_request.count or set(ids.values()) != {own}:
        text = (
            f"kubelet took devices of {len(ids)} cards ({', '.join(sorted(ids))}) for container {start.allocation.container}, "
            f"which asks for {own} units on each of {ask.card_request.count}; another try may find them together"
        )
        raise RefusedStartError("ids", text)


def _without_record(annotations: Mapping[str, str]) -> dict[str, str]:
    """Without what names containers or cards of the former place."""
    ours = (
        well_known.VISIBLE_DEVICES_PREFIX,
        well_known.LIMIT_MIB_PREFIX,
        well_known.ALLOCATION,
        well_known.GPUSHARE_ALLOCATION,
        well_known.GPUSHARE_IDX,
    )
    return {key: value for key, value in annotations.items() if not key.startswith(ours)}


def _to_card(facts: CardFacts) -> Card:
    return Card(facts.index, facts.units, facts.memory_mib, facts.uuid, facts.model, facts.healthy)
