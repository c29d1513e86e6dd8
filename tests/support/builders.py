"""Builders of the values that tests are about. Extend a builder; do not paste objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.node import (
    Card,
    CardFacts,
    CardInstances,
    DeviceNaming,
    InjectionMode,
    Node,
    NodeFacts,
    build_node,
)
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, UnreadableRecord, read_record, write_record
from vrampack.cards.request import UNLISTED_WORDS, ContainerSpec, PodRequest, RequestWord, read_pod_request

UNIT_MIB = 1024


def card_facts(*units: int, model: str = "", uuids: Sequence[str] = ()) -> tuple[CardFacts, ...]:
    """Healthy cards of so many units, index by index; `GPU-<index>` where no uuids are given."""
    names = uuids or [f"GPU-{index}" for index in range(len(units))]
    return tuple(CardFacts(index, each, each * UNIT_MIB, names[index], model=model) for index, each in enumerate(units))


def node_facts(name: str = "n", *units: int, legacy: bool = False) -> NodeFacts:
    """What the API server holds about a node with such cards, 15 units by default."""
    cards = card_facts(*(units or (15,)))
    if legacy:
        cards = tuple(CardFacts(card.index, card.units, card.memory_mib) for card in cards)
    return NodeFacts(name, cards, unit_mib=None if legacy else UNIT_MIB, legacy=legacy)


def record_of(allocation: Allocation) -> Record:
    """The record as it is read back from the annotations that are written for it."""
    return Record("vrampack", allocation.cards)


def snapshot_node(
    name: str = "n",
    *,
    units: Sequence[int] = (16, 16),
    used: Sequence[int] = (),
    unhealthy: Iterable[int] = (),
    cordoned: Iterable[int] = (),
    models: Sequence[str] = (),
    memory_mib: Sequence[int] = (),
    devices: DeviceNaming = "uuid",
    injection: InjectionMode | None = "exact",
    legacy: bool = False,
    serves: frozenset[RequestWord] = UNLISTED_WORDS,
    instances: Sequence[CardInstances | None] = (),
) -> Node:
    """A node of which so much is used, card by card; a unit of memory per unit unless `memory_mib` says more."""
    sick, parked = set(unhealthy), set(cordoned)
    cards = tuple(
        Card(
            index=index,
            units=each,
            memory_mib=memory_mib[index] if memory_mib else each * UNIT_MIB,
            uuid=None if legacy else f"GPU-{index}",
            model=models[index] if models else "",
            healthy=index not in sick,
            cordoned=index in parked,
            used_units=used[index] if index < len(used) else 0,
            instances=instances[index] if index < len(instances) else None,
        )
        for index, each in enumerate(units)
    )
    facts = NodeFacts(
        name,
        unit_mib=None if legacy else UNIT_MIB,
        injection=injection,
        devices=devices,
        serves=serves,
        legacy=legacy,
    )
    return build_node(facts, cards, unit_mib=UNIT_MIB)


def container_specs(
    main: Sequence[object] = (), init: Sequence[object] = (), *, sidecars: Collection[int] = ()
) -> list[ContainerSpec]:
    """Containers `main0`.. and `init0`.. that ask these quantities; the init ones at `sidecars` are restartable."""
    return [
        ContainerSpec(f"init{at}", "sidecar" if at in sidecars else "init", at, str(quantity), has_reference=True)
        for at, quantity in enumerate(init)
    ] + [ContainerSpec(f"main{at}", "main", at, str(quantity), has_reference=True) for at, quantity in enumerate(main)]


def pod_request(
    units: int = 4,
    *,
    count: int = 1,
    whole: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> PodRequest:
    """What a pod of one container asks."""
    given = dict(labels or {})
    if count != 1:
        given["aliyun.com/gpu-count"] = str(count)
    if whole:
        given["ack.gpushare.placement"] = "require-whole-device"
    ask = read_pod_request([ContainerSpec("main", "main", 0, str(units), has_reference=True)], given, annotations or {})
    if ask is None:
        raise ValueError("a pod that asks nothing has no ask")
    return ask


def ledger_pod(
    name: str = "p",
    *,
    units: int = 4,
    ask: PodRequest | None = None,
    node: str = "",
    record: Record | UnreadableRecord | None = None,
    leaving: bool = False,
    finished: bool = False,
    uid: str = "",
    priority: int = 0,
    created: str = "",
    version: str = "",
    scheduler: str = "vrampack",
    gated: bool = False,
) -> Pod:
    """A pod of namespace `default`; its uid is its name unless given."""
    return Pod(
        uid=uid or name,
        namespace="default",
        name=name,
        node_name=node,
        request=ask or pod_request(units),
        record=record,
        is_terminating=leaving,
        is_finished=finished,
        priority=priority,
        created_at=created,
        resource_version=version,
        scheduler_name=scheduler,
        is_gated=gated,
    )


def allocation_record(node: Node, cards: Sequence[Card], ask: PodRequest) -> Record:
    """What reading back the record of a bind to these cards gives."""
    read = read_record(write_record(allocate_cards(node, cards, ask), ask, node, now_ns=1), ask)
    if not isinstance(read, Record):
        raise TypeError(f"a record of ours reads back as {read}")
    return read
