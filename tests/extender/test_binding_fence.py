"""What becomes of reservations that no answer and no watch confirms: each ends bound, fenced or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.extender.binding_harness import BINDING, POD, STATUS, BindingHarness, open_binding_harness
from tests.support.builders import UNIT_MIB, card_facts
from tests.support.manifest_builders import (
    read_allocation_record,
)
from vrampack.cards.node import NodeFacts
from vrampack.kube.errors import RefusedError


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[BindingHarness]:
    async with open_binding_harness() as made:
        yield made


async def test_an_acknowledged_bind_is_confirmed_without_the_watch(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    assert await stage.bind(pod) == ""
    assert len(stage.ledger.list_reservations()) == 1
    await stage.binder.confirm_reservations()
    assert stage.proxy.count("GET", POD) == 0  # the watch gets two seconds
    stage.seconds = 2.0
    await stage.binder.confirm_reservations()
    assert stage.ledger.list_reservations() == []
    assert stage.used() == 4


async def test_a_binding_that_landed_unheard_is_found(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).cut_after_write(times=1)
    stage.proxy.when("GET", POD).answer(500, times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    stage.seconds = 2.0
    await stage.binder.confirm_reservations()
    assert stage.ledger.list_reservations() == []
    assert stage.used() == 4


async def test_an_unconfirmed_place_of_a_pod_that_vanished_unseen_is_freed(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    stage.server.delete("pods", "a", namespace="default", grace_seconds=0)
    stage.seconds = 2.0
    await stage.binder.confirm_reservations()
    assert stage.used() == 0


async def test_a_look_up_that_the_watch_overtook_brings_nothing_back(stage: BindingHarness) -> None:
    """The API server answered while the pod was there; that it is gone was heard before the answer, and only once."""
    pod = stage.add_pod("a")
    assert await stage.bind(pod) == ""
    stage.seconds = 2.0
    held = stage.proxy.when("GET", POD).hold_reply(times=1)
    settling = asyncio.create_task(stage.binder.confirm_reservations())
    await stage.proxy.reached(held)
    stage.hear(stage.server.get("pods", "a", namespace="default"))
    stage.ledger.remove_pod(pod.uid)
    held.release()
    await settling
    assert stage.used() == 0


async def test_an_unanswered_binding_is_fenced(stage: BindingHarness) -> None:
    """The pod gets a new version, for which the Binding is not: it can land no more, and the place is free."""
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).cut(times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    assert stage.used() == 4
    stage.seconds = 2.0
    await stage.binder.confirm_reservations()
    assert stage.used() == 0
    assert "vrampack.dev/retry" in stage.server.get("pods", "a", namespace="default")["metadata"]["annotations"]
    with pytest.raises(RefusedError, match="Precondition failed"):
        await stage.api.bind("default", "a", pod.uid, "n", {}, version=pod.resource_version, timeout_seconds=5)


async def test_the_watch_fences_too(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    stage.ledger.update_pod(pod)
    assert stage.used() == 4, "an event of the version that the Binding carried says nothing"
    stage.hear(stage.change_pod("a"))
    assert stage.used() == 0


async def test_while_the_api_server_takes_no_write_the_place_stays(stage: BindingHarness) -> None:
    """After 2 s, then after 2, 4, 8 and 15 more: in the first 60 s it is looked up 6 times, at 2, 4, 8, 16, 31 and 46."""
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    stage.proxy.when("PATCH", STATUS).answer(500, times=1000)
    await stage.bind(pod)
    asked = stage.proxy.count("GET", POD)
    for second in range(60):
        stage.seconds = float(second)
        await stage.binder.confirm_reservations()
    assert stage.proxy.count("GET", POD) - asked == 6
    assert stage.used() == 4


async def test_a_pod_that_changed_unheard_is_bound_with_one_get_and_one_more_post(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.change_pod("a")
    assert await stage.bind(pod) == ""
    assert (stage.proxy.count("POST", BINDING), stage.proxy.count("GET", POD)) == (2, 1)
    assert stage.metrics.stale_bindings._value.get() == 1
    assert stage.used() == 4


async def test_a_conflict_at_the_version_of_the_binding_is_no_answer(stage: BindingHarness) -> None:
    """The API server answers 409 for errors of etcd too, a time-out among them: the Binding may still land."""
    stage.proxy.when("POST", BINDING).answer(409, times=1)
    assert (await stage.bind(stage.add_pod("a"))).startswith("bind outcome unknown")
    assert stage.used() == 4


async def test_a_bind_to_another_node_fences_the_first_place(stage: BindingHarness) -> None:
    """However often its binds fail, a pod has one place."""
    for name in "mop":
        stage.add_node(name)
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=3)
    for name in "nmo":
        assert (await stage.bind(pod, name)).startswith("bind outcome unknown")
        assert [each.node_name for each in stage.ledger.list_reservations()] == [name]
    assert await stage.bind(pod, "p") == ""
    assert [stage.used(name) for name in "nmop"] == [0, 0, 0, 4]


async def test_a_bind_to_another_node_fails_while_the_first_place_cannot_be_fenced(stage: BindingHarness) -> None:
    stage.add_node("m")
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    stage.proxy.when("PATCH", STATUS).answer(500, times=1)
    await stage.bind(pod)
    assert (await stage.bind(pod, "m")).endswith("nothing was bound")
    assert (stage.used("n"), stage.used("m")) == (4, 0)


async def test_binds_of_one_pod_to_two_nodes_follow_one_another(stage: BindingHarness) -> None:
    stage.add_node("m")
    pod = stage.add_pod("a")
    held = stage.proxy.when("POST", BINDING).hold(times=1)
    first, second = asyncio.create_task(stage.bind(pod)), asyncio.create_task(stage.bind(pod, "m"))
    await stage.proxy.reached(held)
    held.release()
    assert await first == ""
    assert await second == "pod default/a is already bound to node n; nothing was bound"
    assert (stage.used("n"), stage.used("m")) == (4, 0)


async def test_a_mute_api_server_delays_no_look_up_by_all_others(stage: BindingHarness) -> None:
    pods = [stage.add_pod(f"p{number}", 1) for number in range(10)]
    for pod in pods:
        assert await stage.bind(pod) == ""
    stage.seconds = 2.0
    held = stage.proxy.when("GET", POD).hold(times=10)
    confirming = asyncio.create_task(stage.binder.confirm_reservations())
    await stage.proxy.reached(held, 10)
    held.release()
    await confirming
    assert stage.ledger.list_reservations() == []


async def test_a_pod_that_etcd_finds_too_large_holds_nothing(stage: BindingHarness) -> None:
    """Whatever the status is: nothing was written, and nothing will be."""
    said = {"kind": "Status", "code": 500, "message": "etcdserver: request is too large"}
    stage.proxy.when("POST", BINDING).answer(500, body=said, times=1)
    assert (await stage.bind(stage.add_pod("a"))).endswith("nothing was bound")
    assert stage.used() == 0


async def test_a_refused_retry_keeps_the_place_of_the_first_try(stage: BindingHarness) -> None:
    """The first Binding may still land, whatever the API server says to the second."""
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    stage.proxy.when("POST", BINDING).answer(429, times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    assert "429" in await stage.bind(pod)
    assert stage.used() == 4


async def test_a_retry_after_the_cards_were_replaced_takes_one_of_the_new(stage: BindingHarness) -> None:
    """The place of the first try is on a card that is gone: posting it again would write a record of nothing."""
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(500, times=1)
    assert (await stage.bind(pod)).startswith("bind outcome unknown")
    stage.ledger.update_node(NodeFacts("n", card_facts(15, uuids=["GPU-new"]), unit_mib=UNIT_MIB))
    assert await stage.bind(pod) == ""
    bound = stage.server.get("pods", "a", namespace="default")
    assert read_allocation_record(bound)["cards"][0]["uuid"] == "GPU-new"
    assert stage.used() == 4
