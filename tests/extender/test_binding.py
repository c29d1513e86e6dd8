"""Binding beyond one call: overlapping binds, callers that hang up, answers that are lost or refused.

The API server is the embedded one behind the failing proxy; nothing feeds the ledger but the binder itself, as if
every watch were late. All rows of a single bind are in `tests/e2e/test_bind_rows.py`; the worst of them are here too,
where they need no cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from extender.scheduling.bindings_in_flight import MOST
from extender.wire.codec import BindingArgs
from tests.extender.binding_harness import BINDING, POD, BindingHarness, open_binding_harness
from tests.support.builders import node_facts
from tests.support.manifest_builders import (
    pod_manifest,
)


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[BindingHarness]:
    async with open_binding_harness() as made:
        yield made


@pytest.mark.parametrize("units", [4, 0])
async def test_overlapping_binds_of_one_pod_to_one_node_send_one_binding(stage: BindingHarness, units: int) -> None:
    pod = stage.add_pod("a", units)
    held = stage.proxy.when("POST", BINDING).hold(times=1)
    calls = [asyncio.create_task(stage.bind(pod)) for _ in range(3)]
    await stage.proxy.reached(held)
    held.release()
    assert await asyncio.gather(*calls) == ["", "", ""]
    assert stage.proxy.count("POST", BINDING) == 1
    assert stage.proxy.count("GET", POD) <= 1  # of a pod that asks for nothing, which the ledger does not keep


async def test_a_caller_that_hangs_up_does_not_stop_the_bind(stage: BindingHarness) -> None:
    """The scheduler gave up; the Binding is on its way, and its answer decides about the place."""
    pod = stage.add_pod("a")
    held = stage.proxy.when("POST", BINDING).hold(times=1)
    call = asyncio.create_task(stage.bind(pod))
    await stage.proxy.reached(held)
    call.cancel()
    held.release()
    await stage.binder.drain_binds(5)
    assert stage.server.get("pods", "a", namespace="default")["spec"].get("nodeName") == "n"
    assert stage.used() == 4


async def test_drain_waits_for_the_bind_under_way(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    held = stage.proxy.when("POST", BINDING).hold(times=1)
    call = asyncio.create_task(stage.bind(pod))
    await stage.proxy.reached(held)
    drained = asyncio.create_task(stage.binder.drain_binds(5))
    held.release()
    await drained
    assert await call == ""


async def test_eight_binds_at_once_never_share_the_last_place(stage: BindingHarness) -> None:
    """15 units hold three pods of 4: every other bind is refused before anything is sent."""
    pods = [stage.add_pod(f"p{number}") for number in range(8)]
    answers = await asyncio.gather(*(stage.bind(pod) for pod in pods))
    assert sorted(answers)[:3] == ["", "", ""]
    assert [answer for answer in answers if answer] == [
        "node n: no card with enough free memory; nothing was bound"
    ] * 5
    assert stage.proxy.count("POST", BINDING) == 3
    assert stage.used() == 12


async def test_a_refused_binding_gives_its_place_back(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.proxy.when("POST", BINDING).answer(422, times=1)
    answer = await stage.bind(pod)
    assert "422" in answer
    assert answer.endswith("nothing was bound")
    assert stage.used() == 0


async def test_a_bind_whose_reply_is_lost_looks_the_pod_up(stage: BindingHarness) -> None:
    stage.proxy.when("POST", BINDING).cut_after_write(times=1)
    assert await stage.bind(stage.add_pod("a")) == ""
    assert (stage.proxy.count("POST", BINDING), stage.proxy.count("GET", POD)) == (1, 1)
    assert stage.used() == 4


async def test_a_second_bind_of_a_bound_pod_sends_nothing(stage: BindingHarness) -> None:
    """The watch has not shown the first Binding yet; later a look-up does."""
    pod = stage.add_pod("a")
    assert await stage.bind(pod) == ""
    assert await stage.bind(pod) == ""
    assert (stage.proxy.count("POST", BINDING), stage.proxy.count("GET", POD)) == (1, 0)
    stage.seconds += 3
    assert await stage.bind(pod) == ""
    assert (stage.proxy.count("POST", BINDING), stage.proxy.count("GET", POD)) == (1, 1)
    assert stage.used() == 4


@pytest.mark.parametrize("status", [401, 403, 404, 409, 413, 422, 429, 500])
async def test_no_answer_to_a_second_bind_frees_what_the_first_has_written(stage: BindingHarness, status: int) -> None:
    """The load that makes the watch late is the load that makes an API server refuse calls."""
    pod = stage.add_pod("a", 10)
    assert await stage.bind(pod) == ""
    for method, path in (("POST", BINDING), ("GET", POD), ("PATCH", POD)):
        stage.proxy.when(method, path).answer(status)
    for _ in range(2):
        assert await stage.bind(pod) == ""
        assert stage.used() == 10
        stage.seconds += 3
    assert (await stage.bind(stage.add_pod("b", 10))).endswith("no card with enough free memory; nothing was bound")


async def test_a_404_that_is_not_the_api_servers_frees_nothing(stage: BindingHarness) -> None:
    """The Binding was written, its answer was lost, and a balancer without servers answers the look-up."""
    stage.proxy.when("POST", BINDING).cut_after_write(times=1)
    stage.proxy.when("GET", POD).answer(404, b"default backend - 404", times=1)
    assert (await stage.bind(stage.add_pod("a", 10))).startswith("bind outcome unknown")
    assert stage.used() == 10


async def test_a_binding_that_was_lost_with_a_backup_is_sent_again(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    before = stage.server.get("pods", "a", namespace="default")
    assert await stage.bind(pod) == ""
    stage.server.delete("pods", "a", namespace="default", grace_seconds=0)
    stage.server.restore(before)
    stage.seconds += 3
    assert await stage.bind(pod) == ""
    assert stage.proxy.count("POST", BINDING) == 2
    assert stage.server.get("pods", "a", namespace="default")["spec"]["nodeName"] == "n"
    assert stage.used() == 4


async def test_a_conflict_over_another_node_is_refused_and_holds_nothing_here(stage: BindingHarness) -> None:
    stage.add_node("m")
    pod = stage.add_pod("a")
    assert await stage.bind(pod, "m") == ""
    assert await stage.bind(pod) == "pod default/a is already bound to node m; nothing was bound"
    assert (stage.used("m"), stage.used("n")) == (4, 0)


async def test_a_bind_fails_for_a_pod_bound_to_this_node_by_another_scheduler(stage: BindingHarness) -> None:
    """Bound without a record it counts on every card of the node."""
    pod = stage.add_pod("a")
    await stage.api.bind("default", "a", pod.uid, "n", {}, timeout_seconds=5)
    answer = await stage.bind(pod)
    assert answer == "pod default/a is already bound to node n by another program; nothing was bound"
    assert stage.used() == 4


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
async def test_a_recreated_pod_is_not_bound_by_the_call_for_its_predecessor(
    stage: BindingHarness, *, seen: bool
) -> None:
    pod = stage.add_pod("a")
    stage.server.delete("pods", "a", namespace="default", grace_seconds=0)
    stage.server.create(pod_manifest("a", 4) | {"kind": "Pod"})
    if seen:
        stage.ledger.remove_pod(pod.uid)
    assert (await stage.bind(pod)).endswith("nothing was bound")
    assert "nodeName" not in stage.server.get("pods", "a", namespace="default")["spec"]
    assert stage.used() == 0


async def test_a_call_that_names_the_uid_of_another_pod_binds_neither(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    outcome = await stage.binder.bind(BindingArgs("b", "default", pod.uid, "n"))
    assert outcome.error == "pod default/b does not exist; nothing was bound"
    assert stage.used() == 0


async def test_a_pod_that_is_being_deleted_is_not_bound(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    stage.ledger.update_pod(replace(pod, is_terminating=True))
    assert await stage.bind(pod) == "pod default/a is being deleted or has finished; nothing was bound"
    assert stage.proxy.count("POST", BINDING) == 0


async def test_no_binding_is_sent_after_the_deadline(stage: BindingHarness) -> None:
    """The pod is not in the ledger, and asking for it takes longer than the 3 s that a bind has."""
    pod = stage.add_pod("a")
    stage.ledger.remove_pod(pod.uid)
    held = stage.proxy.when("GET", POD).hold(times=1)
    call = asyncio.create_task(stage.bind(pod))
    await stage.proxy.reached(held)
    stage.seconds = 3.0
    held.release()
    assert (await call).endswith("the deadline passed before the Binding was sent; nothing was bound")
    assert stage.proxy.count("POST", BINDING) == 0
    assert stage.used() == 0


async def test_a_pod_that_admission_did_not_wire_is_refused_where_it_would_see_no_card(stage: BindingHarness) -> None:
    pod = stage.add_pod("a", wired=False)
    answer = await stage.bind(pod)
    assert "created before the admission policy; recreate it" in answer
    assert stage.proxy.count("POST", BINDING) == 0
    assert stage.used() == 0


async def test_an_unwired_pod_is_bound_where_the_plugin_injects_the_card(stage: BindingHarness) -> None:
    stage.add_node("m", injection="cdi")
    assert await stage.bind(stage.add_pod("a", wired=False), "m") == ""


@pytest.mark.parametrize("is_wired", [True, False])
async def test_filter_passes_exactly_the_nodes_to_which_the_pod_can_be_bound(
    stage: BindingHarness,
    is_wired: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """All ways in which a container gets its card, side by side. A node that only filter passes would be retried for ever."""
    stage.add_node("cdi", injection="cdi")
    stage.add_node("unknown", injection="nri")
    stage.ledger.update_node(node_facts("legacy", 15, legacy=True))
    names = ["n", "cdi", "legacy", "unknown"]
    pod = stage.add_pod("a", wired=is_wired)
    shown = stage.ledger.get_pod(pod.uid)
    assert shown is not None
    assert shown.request is not None
    outcome = stage.engine.filter_nodes(names, shown.request, pod.uid)
    older = {} if is_wired else {"n": "created before the admission policy"}
    assert outcome.unresolvable == older | {"unknown": "injection mode not known"}
    assert outcome.passed == [name for name in names if name not in outcome.unresolvable]
    for name in names:
        each = stage.add_pod(f"to-{name}", wired=is_wired)
        assert (await stage.bind(each, name) == "") == (name in outcome.passed)


async def test_nvidia_fractions_are_written_where_configured() -> None:
    async with open_binding_harness(nvidia_fractions=True) as stage:
        assert await stage.bind(stage.add_pod("a")) == ""
        written = stage.server.get("pods", "a", namespace="default")["metadata"]["annotations"]
    # 16130 MiB * 4 / 15 = 4301.3
    assert written["nvidia.com/container.main.gpu-memory.limit"] == "4301Mi"
    assert written["nvidia.com/container.main.gpu-memory.request"] == "4301Mi"
    assert written["nvidia.com/container.main.gpus.devices"] == "GPU-0"


async def test_a_binding_that_found_no_free_connection_was_not_sent() -> None:
    """The cards that were reserved for the pod are free again at once."""
    async with open_binding_harness(connections=1, deadlines={"bind_seconds": 0.5}) as stage:
        busy = stage.proxy.when("GET", "/pods/other$").hold()
        other = asyncio.create_task(stage.api.get_pod("default", "other", timeout_seconds=60))
        await stage.proxy.reached(busy)
        assert await stage.bind(stage.add_pod("a")) == (
            "pod default/a: create pods/binding: not sent: no connection was free or could be made within 0.5 s; nothing was bound"
        )
        assert (stage.used(), stage.proxy.count("POST", BINDING)) == (0, 0)
        other.cancel()


async def test_fewer_bindings_are_sent_at_once_while_the_api_server_does_not_answer_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ten more than may be under way wait in vain, and are refused without a trace."""
    async with open_binding_harness(connections=2 * MOST, deadlines={"bind_seconds": 1}) as stage:
        names = [f"p{number}" for number in range(MOST + 10)]
        for name in names:
            stage.add_node(name)
        pods = [stage.add_pod(name) for name in names]
        silent = stage.proxy.when("POST", BINDING).hang()
        outcomes = await asyncio.gather(*(stage.bind(pod, pod.name) for pod in pods))
        why = f"not sent: the API server is slow, and {MOST} Bindings are under way; nothing was bound"
        assert [text.partition(": ")[2] for text in outcomes].count(why) == 10
        assert silent.hits == MOST
        assert [text for text in caplog.messages if "at_once" in text] == [
            f"the API server is too slow for its Bindings at_once={MOST // 2}"
        ]
        assert [stage.used(name) for name in names] == [4] * MOST + [0] * 10
