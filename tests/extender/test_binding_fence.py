"""What becomes of reservations that no answer and no watch confirms: each ends bound, fenced or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.scheduling.binding_fence import CONFIRM_AFTER_SECONDS
from tests.extender.binding_harness import BINDING, POD, STATUS, BindingHarness, open_binding_harness
from tests.support.builders import UNIT_MIB, card_facts
from tests.support.manifest_builders import (
    read_allocation_record,
)
from vrampack.cards.node import NodeFacts
from vrampack.kube.errors import RefusedError


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[BindingHarness]:
    async with open_binding_harness() as made:
        yield made


async def test_an_acknowledged_bind_is_confirmed_without_the_watch(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    assert await harness.bind(pod) == ""
    assert len(harness.ledger.places.list_reservations()) == 1
    await harness.binder.confirm_reservations()
    assert harness.proxy.count("GET", POD) == 0  # the watch has time to confirm it first
    harness.seconds = CONFIRM_AFTER_SECONDS
    await harness.binder.confirm_reservations()
    assert harness.ledger.places.list_reservations() == []
    assert harness.used() == 4


async def test_a_binding_that_landed_without_a_reply_is_found(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).cut_after_write(times=1)
    harness.proxy.when("GET", POD).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.seconds = CONFIRM_AFTER_SECONDS
    await harness.binder.confirm_reservations()
    assert harness.ledger.places.list_reservations() == []
    assert harness.used() == 4


async def test_a_pod_is_looked_up_again_no_sooner_than_the_api_server_asks(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).cut_after_write(times=1)
    harness.proxy.when("GET", POD).answer(503, headers={"Retry-After": "20"}, times=2)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    lookups = []
    for harness.seconds in (CONFIRM_AFTER_SECONDS, CONFIRM_AFTER_SECONDS + 19, CONFIRM_AFTER_SECONDS + 31):
        await harness.binder.confirm_reservations()
        lookups.append(harness.proxy.count("GET", POD))
    assert lookups == [2, 2, 3]
    assert harness.ledger.places.list_reservations() == []


async def test_an_unconfirmed_place_of_a_pod_that_vanished_unseen_is_freed(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.server.delete("pods", "a", namespace="default", grace_seconds=0)
    harness.seconds = CONFIRM_AFTER_SECONDS
    await harness.binder.confirm_reservations()
    assert harness.used() == 0


async def test_a_look_up_overtaken_by_the_watch_revives_no_deleted_pod(harness: BindingHarness) -> None:
    """The API server answered while the pod was there; its deletion was seen before the answer, and only once."""
    pod = harness.add_pod("a")
    assert await harness.bind(pod) == ""
    harness.seconds = CONFIRM_AFTER_SECONDS
    held = harness.proxy.when("GET", POD).hold_reply(times=1)
    settling = asyncio.create_task(harness.binder.confirm_reservations())
    await harness.proxy.reached(held)
    harness.hear(harness.server.get("pods", "a", namespace="default"))
    harness.ledger.remove_pod(pod.uid)
    held.release()
    await settling
    assert harness.used() == 0


async def test_an_unanswered_binding_is_fenced(harness: BindingHarness) -> None:
    """The pod gets a new version. The Binding names the old one, so it can no longer be applied, and the units are free."""
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).cut(times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    assert harness.used() == 4
    harness.seconds = CONFIRM_AFTER_SECONDS
    await harness.binder.confirm_reservations()
    assert harness.used() == 0
    assert "vrampack.dev/retry" in harness.server.get("pods", "a", namespace="default")["metadata"]["annotations"]
    with pytest.raises(RefusedError, match="Precondition failed"):
        await harness.api.bind("default", "a", pod.uid, "n", {}, version=pod.resource_version, timeout_seconds=5)


async def test_a_watch_event_with_a_new_pod_version_fences_the_binding(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.ledger.update_pod(pod)
    assert harness.used() == 4, "an event of the version that the Binding carried says nothing"
    harness.hear(harness.change_pod("a"))
    assert harness.used() == 0


async def test_the_place_is_kept_while_the_api_server_accepts_no_writes(harness: BindingHarness) -> None:
    """After 2 s, then after 2, 4, 8 and 15 more: in the first 60 s it is looked up 6 times, at 2, 4, 8, 16, 31 and 46."""
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    harness.proxy.when("PATCH", STATUS).answer(500, times=1000)
    await harness.bind(pod)
    asked = harness.proxy.count("GET", POD)
    for second in range(60):
        harness.seconds = float(second)
        await harness.binder.confirm_reservations()
    assert harness.proxy.count("GET", POD) - asked == 6
    assert harness.used() == 4


async def test_a_pod_that_changed_unseen_is_bound_with_one_get_and_one_more_post(harness: BindingHarness) -> None:
    pod = harness.add_pod("a")
    harness.change_pod("a")
    assert await harness.bind(pod) == ""
    assert (harness.proxy.count("POST", BINDING), harness.proxy.count("GET", POD)) == (2, 1)
    assert harness.metrics.stale_bindings._value.get() == 1
    assert harness.used() == 4


async def test_a_409_for_an_unchanged_pod_keeps_the_reservation(harness: BindingHarness) -> None:
    """The API server answers 409 for errors of etcd too, a time-out among them: the Binding may still land."""
    harness.proxy.when("POST", BINDING).answer(409, times=1)
    assert (await harness.bind(harness.add_pod("a"))).startswith("bind outcome unknown")
    assert harness.used() == 4


async def test_a_bind_to_another_node_fences_the_first_place(harness: BindingHarness) -> None:
    """However often its binds fail, a pod has one place."""
    for name in ["m", "o", "p"]:
        harness.add_node(name)
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=3)
    for name in ["n", "m", "o"]:
        assert (await harness.bind(pod, name)).startswith("bind outcome unknown")
        assert [each.node_name for each in harness.ledger.places.list_reservations()] == [name]
    assert await harness.bind(pod, "p") == ""
    assert [harness.used(name) for name in ["n", "m", "o", "p"]] == [0, 0, 0, 4]


async def test_a_bind_to_another_node_fails_while_the_first_place_cannot_be_fenced(harness: BindingHarness) -> None:
    harness.add_node("m")
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    harness.proxy.when("PATCH", STATUS).answer(500, times=1)
    await harness.bind(pod)
    assert (await harness.bind(pod, "m")).endswith("nothing was bound")
    assert (harness.used("n"), harness.used("m")) == (4, 0)


async def test_binds_of_one_pod_to_two_nodes_run_one_after_the_other(harness: BindingHarness) -> None:
    harness.add_node("m")
    pod = harness.add_pod("a")
    held = harness.proxy.when("POST", BINDING).hold(times=1)
    first, second = asyncio.create_task(harness.bind(pod)), asyncio.create_task(harness.bind(pod, "m"))
    await harness.proxy.reached(held)
    held.release()
    assert await first == ""
    assert await second == "pod default/a is already bound to node n; nothing was bound"
    assert (harness.used("n"), harness.used("m")) == (4, 0)


async def test_reservations_are_looked_up_at_the_same_time(harness: BindingHarness) -> None:
    pods = [harness.add_pod(f"p{number}", 1) for number in range(10)]
    for pod in pods:
        assert await harness.bind(pod) == ""
    harness.seconds = CONFIRM_AFTER_SECONDS
    held = harness.proxy.when("GET", POD).hold(times=10)
    confirming = asyncio.create_task(harness.binder.confirm_reservations())
    await harness.proxy.reached(held, 10)
    held.release()
    await confirming
    assert harness.ledger.places.list_reservations() == []


async def test_a_pod_that_etcd_finds_too_large_holds_nothing(harness: BindingHarness) -> None:
    """Whatever the status is: nothing was written, and nothing will be."""
    said = {"kind": "Status", "code": 500, "message": "etcdserver: request is too large"}
    harness.proxy.when("POST", BINDING).answer(500, body=said, times=1)
    assert (await harness.bind(harness.add_pod("a"))).endswith("nothing was bound")
    assert harness.used() == 0


async def test_a_refused_retry_keeps_the_place_of_the_first_try(harness: BindingHarness) -> None:
    """The first Binding may still land, whatever the API server says to the second."""
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    harness.proxy.when("POST", BINDING).answer(429, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    retried = await harness.bind(pod)
    assert retried.startswith("bind outcome unknown")
    assert "429" in retried
    assert harness.used() == 4


async def test_a_retry_for_a_pod_that_changed_meanwhile_decides_again(harness: BindingHarness) -> None:
    """The watch has never shown the pod, so no event has fenced the first Binding."""
    pod = harness.add_pod("a")
    harness.ledger.remove_pod(pod.uid)
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.server.patch("pods", "a", {"metadata": {"annotations": {"vrampack.dev/card-model": "other"}}})
    assert await harness.bind(pod) == "node n: card model not allowed; nothing was bound"
    assert harness.used() == 0


async def test_a_retry_after_the_units_changed_writes_a_share_of_the_new_units(harness: BindingHarness) -> None:
    """The share of the first try is of a card of 15 units; the node's agent would refuse the pod."""
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.ledger.update_node(NodeFacts("n", card_facts(30), unit_mib=UNIT_MIB))
    assert await harness.bind(pod) == ""
    bound = harness.server.get("pods", "a", namespace="default")
    assert read_allocation_record(bound)["cards"] == [
        {"uuid": "GPU-0", "index": 0, "units": 4, "of": 30, "whole": False}
    ]
    assert harness.used() == 4


async def test_a_retry_after_the_cards_were_replaced_takes_a_new_card(harness: BindingHarness) -> None:
    """The place of the first try is on a card that is gone: posting it again would write a record of nothing."""
    pod = harness.add_pod("a")
    harness.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await harness.bind(pod)).startswith("bind outcome unknown")
    harness.ledger.update_node(NodeFacts("n", card_facts(15, uuids=["GPU-new"]), unit_mib=UNIT_MIB))
    assert await harness.bind(pod) == ""
    bound = harness.server.get("pods", "a", namespace="default")
    assert read_allocation_record(bound)["cards"][0]["uuid"] == "GPU-new"
    assert harness.used() == 4
