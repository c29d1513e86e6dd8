"""Binding beyond one call: overlapping binds, callers that hang up, reservations that nobody confirms.

The API server is the embedded one behind the failing proxy; nothing feeds the ledger but the binder itself, as if
every watch were late. All rows of a single bind are in `tests/e2e/test_bind_rows.py`; the worst of them stand here too,
where they take no cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest
import pytest_asyncio
from kubernetes.aio.client import Configuration

from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.scheduling.binding import Binder
from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.pod_client import PodClient
from extender.state.soft_reservations import SoftReservations
from extender.wire.codec import BindingArgs
from policies.engine.engine import Engine
from tests.fakes.proxy import FaultProxy
from tests.support.builders import UNIT_MIB, card_facts, node_facts
from tests.support.manifest_builders import (
    cards_annotation,
    pod_manifest,
    published_card,
    read_allocation_record,
    reference_env,
)
from vrampack.cards.node import NodeFacts
from vrampack.cards.pod import Pod
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import NodeObject, PodObject, to_node, to_pod
from vrampack.simulator.apiserver import ApiServer

BINDING = r"/binding$"
POD = r"/pods/[^/]+$"
STATUS = r"/status$"

Struct = TypeVar("Struct", PodObject, NodeObject)


class BindingHarness:
    """A binder over one node `n` of one card of 15 units, and the clock it believes."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, api: Api, **settings: Any) -> None:  # noqa: ANN401 - fields of the configuration
        self.server = server
        self.proxy = proxy
        self.api = api
        self.seconds = 0.0
        self.metrics = ExtenderMetrics("test")
        configuration = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", **settings)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds)
        self.engine = Engine(
            Nominator(self.ledger, PendingPreemptions(self.ledger, clock=lambda: self.seconds)), configuration.policy
        )
        self.binder = Binder(
            ledger=self.ledger,
            pods=PodClient(
                self.ledger,
                api,
                resource="aliyun.com/gpu-mem",
                clock=lambda: self.seconds,
                started_ns=1_700_000_000_000_000_000,
            ),
            engine=self.engine,
            soft_reservations=SoftReservations(lambda: self.seconds),
            api=api,
            events=ExtenderEventRecorder(api, self.metrics, clock=lambda: self.seconds, now=lambda: 0.0),
            metrics=self.metrics,
            settings=configuration,
            clock=lambda: self.seconds,
            now_ns=lambda: 1_700_000_000_000_000_000,
        )
        self.add_node("n")

    def add_node(self, name: str, **published: object) -> None:
        node = {
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"vrampack.dev/cards": cards_annotation(published_card(0), **published)},
            },
        }
        made = self.server.create(node)
        parsed = decoded(made, NodeObject)
        resources = {"resource": "aliyun.com/gpu-mem", "count_resource": "aliyun.com/gpu-count"}
        self.ledger.update_node(to_node(parsed, unit_mib=UNIT_MIB, **resources).facts)

    def add_pod(self, name: str, units: int = 4, *, wired: bool = True) -> Pod:
        """A pod that the ledger has seen; `wired` as admission leaves it."""
        body = pod_manifest(name, units) | {"kind": "Pod"}
        if wired:
            reference = reference_env("main")
            body["spec"]["containers"][0]["env"] = [reference]
        return self.hear(self.server.create(body))

    def hear(self, raw: dict[str, Any]) -> Pod:
        """The watch shows the pod as it is."""
        pod = to_pod(decoded(raw, PodObject))
        self.ledger.update_pod(pod)
        return pod

    def change_pod(self, name: str) -> dict[str, Any]:
        """Somebody writes something on the pod; the ledger has not heard."""
        return self.server.patch("pods", name, {"metadata": {"labels": {"changed": "yes"}}})

    async def bind(self, pod: Pod, node: str = "n") -> str:
        return (await self.binder.bind(BindingArgs(pod.name, pod.namespace, pod.uid, node))).error

    def used(self, name: str = "n") -> int:
        node = self.ledger.get_node(name)
        assert node is not None
        return node.used_units


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[BindingHarness]:
    async with ApiServer() as server, FaultProxy(int(server.url.rpartition(":")[2])) as proxy:
        api = an_api(proxy)
        yield BindingHarness(server, proxy, api)
        await api.close()


def an_api(proxy: FaultProxy) -> Api:
    configuration = Configuration()
    configuration.host = proxy.url
    return Api(Credentials(configuration), observe=lambda **_: None)


async def test_binds_of_one_pod_to_one_node_that_overlap_are_one_bind(stage: BindingHarness) -> None:
    pod = stage.add_pod("a")
    held = stage.proxy.when("POST", BINDING).hold(times=1)
    calls = [asyncio.create_task(stage.bind(pod)) for _ in range(3)]
    await stage.proxy.reached(held)
    held.release()
    assert await asyncio.gather(*calls) == ["", "", ""]
    assert stage.proxy.count("POST", BINDING) == 1


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


async def test_a_lost_reply_is_looked_up(stage: BindingHarness) -> None:
    stage.proxy.when("POST", BINDING).cut_after_write(times=1)
    assert await stage.bind(stage.add_pod("a")) == ""
    assert (stage.proxy.count("POST", BINDING), stage.proxy.count("GET", POD)) == (1, 1)
    assert stage.used() == 4


async def test_a_conflict_over_our_own_binding_to_this_node_is_a_success(stage: BindingHarness) -> None:
    """Neither the watch nor a look-up has shown the first Binding yet."""
    pod = stage.add_pod("a")
    assert await stage.bind(pod) == ""
    assert await stage.bind(pod) == ""
    assert stage.proxy.count("POST", BINDING) == 2


async def test_a_conflict_over_another_node_is_a_no_and_holds_nothing_here(stage: BindingHarness) -> None:
    stage.add_node("m")
    pod = stage.add_pod("a")
    assert await stage.bind(pod, "m") == ""
    assert await stage.bind(pod) == "pod default/a is already bound to node m; nothing was bound"
    assert (stage.used("m"), stage.used("n")) == (4, 0)


async def test_a_pod_that_somebody_else_bound_to_this_node_is_no_success(stage: BindingHarness) -> None:
    """Bound without a record it counts on every card of the node."""
    pod = stage.add_pod("a")
    await stage.api.bind("default", "a", pod.uid, "n", {}, timeout_seconds=5)
    answer = await stage.bind(pod)
    assert answer == "pod default/a is already bound to node n by somebody else; nothing was bound"
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


async def test_a_pod_that_admission_did_not_wire_is_refused_where_it_would_see_no_card(stage: BindingHarness) -> None:
    pod = stage.add_pod("a", wired=False)
    answer = await stage.bind(pod)
    assert "created before the admission policy, recreate it" in answer
    assert stage.proxy.count("POST", BINDING) == 0
    assert stage.used() == 0


async def test_the_same_pod_is_bound_where_the_plugin_gives_the_card(stage: BindingHarness) -> None:
    stage.add_node("m", injection="ids")
    assert await stage.bind(stage.add_pod("a", wired=False), "m") == ""


@pytest.mark.parametrize("is_wired", [True, False])
async def test_filter_passes_exactly_the_nodes_to_which_the_pod_can_be_bound(
    stage: BindingHarness,
    is_wired: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """All ways side by side in which a container gets its card; else the scheduler would bind to one of them for ever."""
    stage.add_node("ids", injection="ids")
    stage.add_node("unknown", injection="nri")
    stage.ledger.update_node(node_facts("legacy", 15, legacy=True))
    names = ["n", "ids", "legacy", "unknown"]
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


async def test_fractions_are_written_where_they_are_wanted() -> None:
    async with ApiServer() as server, FaultProxy(int(server.url.rpartition(":")[2])) as proxy:
        api = an_api(proxy)
        stage = BindingHarness(server, proxy, api, nvidia_fractions=True)
        assert await stage.bind(stage.add_pod("a")) == ""
        await api.close()
        written = server.get("pods", "a", namespace="default")["metadata"]["annotations"]
    # 16130 MiB * 4 / 15 = 4301.3
    assert written["nvidia.com/container.main.gpu-memory.limit"] == "4301Mi"
    assert written["nvidia.com/container.main.gpu-memory.request"] == "4301Mi"
    assert written["nvidia.com/container.main.gpus.devices"] == "GPU-0"


def decoded(raw: dict[str, Any], kind: type[Struct]) -> Struct:
    """A raw API object as the reflector would read it."""
    return msgspec.json.decode(json.dumps(raw), type=kind)
