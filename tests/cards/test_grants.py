"""What one container may use, as its pod's annotations say it in three places."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import container_specs, pod_request, snapshot_node
from vrampack.cards.allocation import allocate_cards, describe_allocation
from vrampack.cards.grants import Grant, read_grant, read_pod_limits
from vrampack.cards.node import DeviceNaming
from vrampack.cards.records import RecordError, write_record
from vrampack.cards.request import PodRequest, read_pod_request
from vrampack.cards.units import compute_limit_mib

ALLOCATION = "vrampack.dev/allocation"
VISIBLE = "visible-devices.vrampack.dev/main"
LIMIT = "limit-mib.vrampack.dev/main"


def recorded(
    ask: PodRequest,
    *,
    units: tuple[int, ...] = (15, 15),
    memory_mib: tuple[int, ...] = (16130, 16130),
    count: int = 1,
    devices: DeviceNaming = "uuid",
) -> dict[str, str]:
    """What the Binding of such a pod to the first cards of a node says."""
    node = snapshot_node(units=units, memory_mib=memory_mib, devices=devices)
    return write_record(allocate_cards(node, node.cards[:count], ask), ask, node, now_ns=1)


@pytest.mark.parametrize("devices", ["uuid", "cdi"])
def test_a_written_grant_is_read_back(devices: DeviceNaming) -> None:
    """Two cards, 4 units on each: floor(16130 * 4 / 15) = 4301."""
    annotations = recorded(pod_request(8, count=2), count=2, devices=devices)
    assert read_grant(annotations, "main") == Grant({"GPU-0": 4, "GPU-1": 4}, {"GPU-0": 4301, "GPU-1": 4301})


def test_the_owner_is_told_cards_and_limits() -> None:
    """floor(16130 * 4 / 15) = 4301, floor(16384 * 4 / 15) = 4369."""
    node = snapshot_node(units=(15, 15), memory_mib=(16130, 16384), models=("V100", "V100"))
    text = describe_allocation(allocate_cards(node, node.cards, pod_request(8, count=2)), node)
    assert text == "8 units (8 GiB) on card 0,1 (V100) of node n; limits on a card: main 4301 or 4369 MiB"


VECTORS = {
    # memory, units of the card, units given: 16130 * 4 / 15 = 4301.3
    "V100, 4 of 15": (16130, 15, 4, 4301),
    # a card that is pinned to 15 units although it has 14.7: 15109 * 6 / 15 = 6043.6
    "T4 pinned to 15, 6": (15109, 15, 6, 6043),
    "T4 pinned to 15, 8": (15109, 15, 8, 8058),
    "all of it": (16130, 15, 15, 16130),
}


@pytest.mark.parametrize(("memory_mib", "units", "given", "wanted"), VECTORS.values(), ids=VECTORS)
def test_the_limit_is_the_share_of_the_real_memory(memory_mib: int, units: int, given: int, wanted: int) -> None:
    annotations = recorded(pod_request(given), units=(units,), memory_mib=(memory_mib,))
    assert read_grant(annotations, "main").limits_mib == {"GPU-0": wanted}
    assert annotations[LIMIT] == str(wanted)


@settings(deadline=None)
@given(st.data())
def test_the_limits_of_a_full_card_never_exceed_it(data: st.DataObject) -> None:
    units = data.draw(st.integers(1, 300))
    memory_mib = data.draw(st.integers(units, 300_000))
    reserve_mib = data.draw(st.integers(0, 2048))
    left, limits = units, []
    while left:
        share = data.draw(st.integers(1, left))
        limits.append(compute_limit_mib(memory_mib, share, units, reserve_mib))
        left -= share
    assert sum(limits) <= max(0, memory_mib - reserve_mib)


def changed(key: str, value: str | None) -> dict[str, str]:
    annotations = recorded(pod_request(4))
    if value is None:
        del annotations[key]
        return annotations
    return annotations | {key: value}


def allocation(main: object) -> str:
    return json.dumps({"v": 1, "cards": [], "containers": {"main": main}})


DAMAGED: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, f"{ALLOCATION} is missing"),
    "no JSON": (changed(ALLOCATION, "{"), "not JSON"),
    "a list": (changed(ALLOCATION, "[]"), "containers.main is missing"),
    "no such container": (changed(ALLOCATION, '{"containers":{"other":[]}}'), "containers.main is missing"),
    "no card": (changed(ALLOCATION, allocation([])), "containers.main is missing"),
    "a text for a card": (changed(ALLOCATION, allocation(["GPU-0"])), r"containers.main\[0\]: not an object"),
    "no uuid": (changed(ALLOCATION, allocation([{"units": 4}])), r"main\[0\].uuid: not a text"),
    "negative units": (changed(ALLOCATION, allocation([{"uuid": "GPU-0", "units": -1}])), r"\[0\].units: -1 is not"),
    "a text for a limit": (
        changed(ALLOCATION, allocation([{"uuid": "GPU-0", "units": 4, "mib": "1"}])),
        r"\[0\].mib: 1 is not a whole number",
    ),
    "a card twice": (
        changed(ALLOCATION, allocation([{"uuid": "GPU-0", "units": 4, "mib": 1}] * 2)),
        "names a card twice",
    ),
    "nothing visible": (changed(VISIBLE, None), f"{VISIBLE} is missing"),
    "all visible": (changed(VISIBLE, "all"), f"{VISIBLE} says 'all', the allocation 'GPU-0'"),
    "one card more": (changed(VISIBLE, "GPU-0,GPU-1"), f"{VISIBLE} says"),
    "a kind in the middle": (changed(VISIBLE, "GPU-k8s.device-plugin.nvidia.com/gpu=0"), f"{VISIBLE} says"),
    "no limit": (changed(LIMIT, None), f"{LIMIT} is missing"),
    "another limit": (changed(LIMIT, "16130"), f"{LIMIT} says '16130', the allocation '4301'"),
}


@pytest.mark.parametrize(("annotations", "text"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_or_inconsistent_grant_is_an_error_that_names_it(annotations: Mapping[str, str], text: str) -> None:
    with pytest.raises(RecordError, match=text):
        read_grant(annotations, "main")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([ALLOCATION, VISIBLE, LIMIT]), st.text()))
def test_random_text_raises_only_a_record_error(annotations: dict[str, str]) -> None:
    with pytest.raises(RecordError):
        read_grant(annotations, "main")


PODS = {
    # what runs side by side is added: floor(16130 * n / 15) of each
    "two containers": ((4, 2), (), (), 4301 + 2150),
    # an init container runs alone, before them
    "a larger init container": ((4,), (6,), (), 6452),
    "a smaller one": ((4,), (2,), (), 4301),
    # a sidecar runs beside the main container
    "a sidecar": ((4,), (2,), (0,), 4301 + 2150),
    # and beside the init container that comes after it
    "an init container beside a sidecar": ((1,), (2, 6), (0,), 2150 + 6452),
}


@pytest.mark.parametrize(("main", "init", "sidecars", "wanted"), PODS.values(), ids=PODS)
def test_a_pods_limit_is_what_its_containers_may_use_at_once(
    main: tuple[int, ...], init: tuple[int, ...], sidecars: tuple[int, ...], wanted: int
) -> None:
    ask = read_pod_request(container_specs(main, init, sidecars=sidecars), {}, {})
    assert ask is not None
    assert read_pod_limits(recorded(ask), ask) == {"GPU-0": wanted}
