"""What one Binding carries, string by string, and that it is read back as what was held."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import container_specs, pod_request, record_of, snapshot_node
from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.node import Node
from vrampack.cards.records import read_record, write_fraction_annotations, write_record
from vrampack.cards.request import ContainerSpec, PodRequest, read_pod_request

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

NOW_NS = 1_700_000_000_000_000_000
V100 = snapshot_node(units=(15,), memory_mib=(16130,))
MIXED = snapshot_node(units=(15, 15, 24, 14), memory_mib=(16130, 16130, 24564, 15109))
LEGACY = snapshot_node(units=(15, 15), legacy=True)

TWO_CARDS = {"aliyun.com/gpu-count": "2"}
WHOLE = {"ack.gpushare.placement": "require-whole-device"}
GPUSHARE = "scheduler.framework.gpushare.allocation"


def asking(
    main: Sequence[object],
    init: Sequence[object] = (),
    *,
    sidecars: Sequence[int] = (),
    labels: Mapping[str, str] | None = None,
) -> PodRequest:
    ask = read_pod_request(container_specs(main, init, sidecars=sidecars), labels or {}, {})
    assert ask is not None
    return ask


def allocated(node: Node, ask: PodRequest, *cards: int, reserve_mib: int = 0) -> Allocation:
    return allocate_cards(node, [node.cards[index] for index in cards], ask, reserve_mib=reserve_mib)


def written(node: Node, ask: PodRequest, *cards: int, reserve_mib: int = 0) -> dict[str, str]:
    return write_record(allocated(node, ask, *cards, reserve_mib=reserve_mib), ask, node, now_ns=NOW_NS)


def stamp(*, assigned: str = "true") -> dict[str, str]:
    return {"ALIYUN_COM_GPU_MEM_ASSIGNED": assigned, "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000"}


def test_the_record_of_one_card() -> None:
    """The founding scenario: 4 of 15 units of a V100; 16130 x 4 / 15 = 4301.3 MiB."""
    assert written(V100, asking([4]), 0) == stamp() | {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4,"of":15,"whole":false}],'
        '"containers":{"main0":[{"uuid":"GPU-0","units":4,"mib":4301}]}}',
        "visible-devices.vrampack.dev/main0": "GPU-0",
        "limit-mib.vrampack.dev/main0": "4301",
        "scheduler.framework.gpushare.allocation": '{"0":{"0":4}}',
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


def test_a_whole_card_that_is_smaller_than_its_part_is_written_as_it_is() -> None:
    """The sum for each card is what is held there, whatever its part of the request: 15.5 or 16.5 units."""
    for units, want in ((31, {"0": 15, "1": 16}), (33, {"0": 15, "1": 16})):
        found = written(snapshot_node(units=(15, 16)), asking([units - 2, 2], labels=WHOLE | TWO_CARDS), 0, 1)
        shares = json.loads(found[GPUSHARE])
        assert {card: sum(given[card] for given in shares.values()) for card in want} == want


def test_two_cards_are_written_in_index_order_with_the_smaller_limit() -> None:
    """8 units on 2 cards: 16130 x 4 / 15 = 4301.3 and 15109 x 4 / 14 = 4316.9 MiB; the limit is one number, 4301.

    `ALIYUN_COM_GPU_MEM_IDX` is absent: it can name only one card.
    """
    ask = asking([8], labels=TWO_CARDS)
    assert written(MIXED, ask, 3, 1) == stamp() | {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-1","index":1,"units":4,"of":15,"whole":false},'
        '{"uuid":"GPU-3","index":3,"units":4,"of":14,"whole":false}],'
        '"containers":{"main0":[{"uuid":"GPU-1","units":4,"mib":4301},{"uuid":"GPU-3","units":4,"mib":4316}]}}',
        "visible-devices.vrampack.dev/main0": "GPU-1,GPU-3",
        "limit-mib.vrampack.dev/main0": "4301",
        "scheduler.framework.gpushare.allocation": '{"0":{"1":4,"3":4}}',
        "ALIYUN_COM_GPU_MEM_POD": "8",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


def test_a_whole_card_holds_all_units_and_limits_nothing() -> None:
    """Asked 4, held 15 of 15: 16130 x 15 / 15 = 16130 MiB."""
    assert written(V100, asking([4], labels=WHOLE), 0) == stamp() | {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":15,"of":15,"whole":true}],'
        '"containers":{"main0":[{"uuid":"GPU-0","units":4,"mib":16130}]}}',
        "visible-devices.vrampack.dev/main0": "GPU-0",
        "limit-mib.vrampack.dev/main0": "16130",
        "scheduler.framework.gpushare.allocation": '{"0":{"0":15}}',
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "15",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


def test_every_asking_container_is_named_and_the_lowest_gets_the_rest() -> None:
    """Held max(4 + 3 + sidecar 2, init 9 + 2) = 11; containers 4 + 3 = 7, so container 0 is shown with 4 + 4.

    16130 x 2 / 15 = 2150.7, x 9 = 9678, x 4 = 4301.3, x 3 = 3226 MiB.
    """
    ask = asking([4, 0, 3], [2, 9], sidecars=[0])
    assert written(V100, ask, 0) == stamp() | {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":11,"of":15,"whole":false}],'
        '"containers":{"init0":[{"uuid":"GPU-0","units":2,"mib":2150}],"init1":[{"uuid":"GPU-0","units":9,"mib":9678}],'
        '"main0":[{"uuid":"GPU-0","units":4,"mib":4301}],"main2":[{"uuid":"GPU-0","units":3,"mib":3226}]}}',
        "visible-devices.vrampack.dev/init0": "GPU-0",
        "visible-devices.vrampack.dev/init1": "GPU-0",
        "visible-devices.vrampack.dev/main0": "GPU-0",
        "visible-devices.vrampack.dev/main2": "GPU-0",
        "limit-mib.vrampack.dev/init0": "2150",
        "limit-mib.vrampack.dev/init1": "9678",
        "limit-mib.vrampack.dev/main0": "4301",
        "limit-mib.vrampack.dev/main2": "3226",
        "scheduler.framework.gpushare.allocation": '{"0":{"0":8},"2":{"0":3}}',
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "11",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


def test_a_legacy_node_names_cards_by_index_and_has_no_limits() -> None:
    assert written(LEGACY, asking([4]), 1) == stamp(assigned="false") | {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":null,"index":1,"units":4,"whole":false}],'
        '"containers":{"main0":[{"uuid":null,"units":4}]}}',
        "visible-devices.vrampack.dev/main0": "1",
        "scheduler.framework.gpushare.allocation": '{"0":{"1":4}}',
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
    }


def test_devices_are_written_as_cdi_names_where_the_node_uses_cdi() -> None:
    node = snapshot_node(units=(15, 15), devices="cdi")
    record = written(node, asking([8], labels=TWO_CARDS), 0, 1)
    names = "k8s.device-plugin.nvidia.com/gpu=GPU-0,k8s.device-plugin.nvidia.com/gpu=GPU-1"
    assert record["visible-devices.vrampack.dev/main0"] == names
    assert '"uuid":"GPU-0"' in record["vrampack.dev/allocation"]


SHOWN: dict[str, tuple[PodRequest, str]] = {
    # the first container asks nothing: the rest 6 - 4 = 2 goes to container 1
    "the lowest container that asks": (asking([0, 4], [6]), '{"1":{"0":6}}'),
    # no container asks
    "container 0 where only an init container asks": (asking([0, 0], [5]), '{"0":{"0":5}}'),
    # 4 + sidecar 2
    "a sidecar's units": (asking([4], [2], sidecars=[0]), '{"0":{"0":6}}'),
}


@pytest.mark.parametrize(("ask", "want"), SHOWN.values(), ids=SHOWN)
def test_the_gpushare_annotation_lists_cards_for_other_tools(ask: PodRequest, want: str) -> None:
    assert written(V100, ask, 0)[GPUSHARE] == want


def test_the_reserve_lowers_every_limit() -> None:
    """(16130 - 300) x 4 / 15 = 4221.3."""
    assert written(V100, asking([4]), 0, reserve_mib=300)["limit-mib.vrampack.dev/main0"] == "4221"


def test_the_longest_container_name_fits_every_key() -> None:
    name = "a" * 63
    ask = read_pod_request([ContainerSpec(name, "main", 0, "4")], {}, {})
    assert ask is not None
    record = written(V100, ask, 0)
    assert f"visible-devices.vrampack.dev/{name}" in record
    assert all(len(key.rpartition("/")[2]) <= 63 for key in record)


def test_nvidias_fraction_annotations_are_written() -> None:
    ask = asking([8], labels=TWO_CARDS)
    assert write_fraction_annotations(allocated(MIXED, ask, 1, 3)) == {
        "nvidia.com/container.main0.gpu-memory.limit": "4301Mi",
        "nvidia.com/container.main0.gpu-memory.request": "4301Mi",
        "nvidia.com/container.main0.gpus.devices": "GPU-1,GPU-3",
    }


def test_no_fractions_are_written_without_an_enforced_limit() -> None:
    assert write_fraction_annotations(allocated(LEGACY, asking([4]), 0)) == {}


@pytest.mark.parametrize(("length", "keys"), [(34, 3), (35, 0)])
def test_no_fractions_are_written_when_the_key_would_be_too_long(length: int, keys: int) -> None:
    """10 for `container.`, the name, 19 for `.gpu-memory.request`: 34 make 63, all that a key may have."""
    ask = read_pod_request([ContainerSpec("a" * length, "main", 0, "4")], {}, {})
    assert ask is not None
    assert len(write_fraction_annotations(allocated(V100, ask, 0))) == keys


@st.composite
def allocations(draw: st.DrawFn) -> tuple[Node, PodRequest, Allocation]:
    """Any pod on any cards that are large enough, of a node of ours or a legacy one."""
    count = draw(st.integers(1, 3))
    main = draw(st.lists(st.integers(0, 4), max_size=3))
    init = draw(st.lists(st.integers(0, 6), max_size=3))
    sidecars = draw(st.sets(st.integers(0, 2)))
    labels = {"aliyun.com/gpu-count": str(count)}
    if draw(st.booleans()):
        labels["ack.gpushare.placement"] = "require-whole-device"
    scaled = [own * count for own in main] or [count]
    ask = read_pod_request(
        container_specs(scaled, [own * count for own in init], sidecars=sidecars), labels, {}
    ) or pod_request(count, count=count)
    extra = draw(st.lists(st.integers(0, 20), min_size=count, max_size=6))
    units = [ask.card_request.units + more for more in extra]
    node = snapshot_node(
        units=units,
        memory_mib=[each * 1024 + draw(st.integers(0, 1023)) for each in units],
        devices=draw(st.sampled_from(["uuid", "cdi"])),
        legacy=draw(st.booleans()),
    )
    cards = draw(st.permutations(node.cards))[: ask.card_request.count]
    return node, ask, allocate_cards(node, cards, ask, reserve_mib=draw(st.integers(0, 600)))


@PATIENT
@given(allocations())
def test_a_written_record_is_read_back(made: tuple[Node, PodRequest, Allocation]) -> None:
    node, ask, allocation = made
    record = write_record(allocation, ask, node, now_ns=NOW_NS)
    assert read_record(record, ask) == record_of(allocation)
    assert all(isinstance(value, str) for value in record.values())


@PATIENT
@given(allocations())
def test_the_gpushare_value_sums_to_what_is_held_on_every_card(made: tuple[Node, PodRequest, Allocation]) -> None:
    node, ask, allocation = made
    record = write_record(allocation, ask, node, now_ns=NOW_NS)
    sums: dict[int, int] = {}
    for cards in json.loads(record[GPUSHARE]).values():
        for index, units in cards.items():
            sums[int(index)] = sums.get(int(index), 0) + units
    assert sums == {card.index: card.units for card in allocation.cards}
    assert int(record["ALIYUN_COM_GPU_MEM_POD"]) == sum(sums.values())
    assert ("ALIYUN_COM_GPU_MEM_IDX" in record) == (len(sums) == 1)


@PATIENT
@given(allocations())
def test_every_asking_container_gets_devices_and_the_smallest_of_its_limits(
    made: tuple[Node, PodRequest, Allocation],
) -> None:
    node, ask, allocation = made
    record = write_record(allocation, ask, node, now_ns=NOW_NS)
    for name, shares in allocation.containers:
        assert len(record[f"visible-devices.vrampack.dev/{name}"].split(",")) == ask.card_request.count
        limit = record.get(f"limit-mib.vrampack.dev/{name}")
        assert limit == (None if node.legacy else str(min(share.mib or 0 for share in shares)))
    assert [name for name, _ in allocation.containers] == [container.name for container in ask.containers]
