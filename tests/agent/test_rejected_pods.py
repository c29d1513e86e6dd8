"""Pods that may not start, as the Node lists them: when, which of them, and until when."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from tests.fakes.api import FakeKubeApi
from tests.support.builders import card_facts, ledger_pod
from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.admission.fence import ContainerStart, Fence
from vrampack.agent.admission.rejected_pods import RejectedPods
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.own_node import MetadataEntries
from vrampack.agent.cluster.refused_pods import RefusedPodsPublisher
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.cards import well_known
from vrampack.cards.refused_pods import MAX_REFUSED_PODS, read_refused
from vrampack.kube.events import EventRecorder

CARDS = card_facts(15)
NO_RECORD = RefusedStartError("no_record", "has no record")
LIMIT = RefusedStartError("limit", "cannot be put in force")


@dataclass
class NodeEntries:
    """What was to be written to the Node, write by write."""

    written: list[str | None] = field(default_factory=list)

    def set_desired(self, entries: MetadataEntries) -> None:
        self.written.append(entries["annotations", well_known.NODE_REFUSED])

    @property
    def reasons(self) -> dict[str, str]:
        last = self.written[-1]
        return {} if last is None else read_refused(last)[0]


@dataclass
class ScriptedPods:
    """What the watch has shown, by uid."""

    found: dict[str, LocalPod] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def find_pod(self, uid: str) -> LocalPod | None:
        return self.found.get(uid)

    def has_ended(self, uid: str) -> bool:
        return uid in self.ended


class RejectedPodsHarness:
    """Refusals with a clock of the test's own and pods without a record."""

    def __init__(self, *, action: Literal["evict", "keep"] = "evict") -> None:
        self.now = 0.0
        self.node = NodeEntries()
        self.pods = ScriptedPods()
        self.fence = Fence("n")
        self.publisher = RefusedPodsPublisher()
        self.publisher.attach_node(self.node)
        events = EventRecorder(
            FakeKubeApi(), component="a", on_dropped=lambda _: None, clock=lambda: self.now, now=lambda: self.now
        )
        self.rejected = RejectedPods(
            self.fence,
            events,
            self.publisher,
            self.pods,
            cards=lambda: CARDS,
            clock=lambda: self.now,
            publish_after_seconds=5,
            action=action,
        )

    def at(self, seconds: float) -> dict[str, str]:
        """What the Node lists at this time."""
        self.now = seconds
        self.rejected.publish_pods()
        return self.node.reasons


def a_start(uid: str = "u", *, is_controlled: bool = True, is_static: bool = False) -> ContainerStart:
    pod = LocalPod(ledger_pod("p", node="n", uid=uid), {}, {}, is_static=is_static, is_controlled=is_controlled)
    return ContainerStart(DeviceAllocation("default", "p", "main", frozenset({"GPU-0::0"})), pod)


def test_pod_is_listed_once_its_refusal_has_lasted_long_enough() -> None:
    stage = RejectedPodsHarness()
    stage.rejected.record_rejection(a_start(), NO_RECORD)
    assert [stage.at(seconds) for seconds in (4.9, 5)] == [{}, {"u": "no_record"}]


def test_delay_is_counted_from_the_first_refusal() -> None:
    stage = RejectedPodsHarness()
    for stage.now in (0.0, 2.0, 4.9):
        stage.rejected.record_rejection(a_start(), NO_RECORD)
    assert stage.at(5) == {"u": "no_record"}


def test_node_is_written_only_on_a_change() -> None:
    """Every change of a Node wakes every pending pod. The first write removes what an earlier agent left."""
    stage = RejectedPodsHarness()
    stage.at(0)
    for stage.now in range(1, 60):
        stage.rejected.record_rejection(a_start(), NO_RECORD)
        stage.rejected.publish_pods()
    stage.rejected.forget_pod("u")
    stage.at(61)
    named = '{"v":1,"pods":{"u":{"reason":"no_record"}}}'
    assert stage.node.written == [None, named, None]


def test_a_pod_that_started_or_was_deleted_is_unlisted() -> None:
    stage = RejectedPodsHarness()
    stage.rejected.record_rejection(a_start(), NO_RECORD)
    assert stage.at(5) == {"u": "no_record"}
    stage.rejected.forget_pod("u")
    assert stage.node.reasons == {}


def test_no_pod_is_listed_in_keep_mode() -> None:
    stage = RejectedPodsHarness(action="keep")
    stage.rejected.record_rejection(a_start(), NO_RECORD)
    assert stage.at(3600) == {}


def test_refusal_expires_when_kubelet_stops_asking() -> None:
    """It asks again within five minutes. The fence has admitted the pod, and cannot say whether its limit can be set by now."""
    stage = RejectedPodsHarness()
    stage.fence.hold_units("u", {"GPU-0": 4})
    stage.rejected.record_rejection(a_start(), LIMIT)
    assert [stage.at(seconds) for seconds in (5, 329, 330)] == [{"u": "limit"}, {"u": "limit"}, {}]


def test_pods_that_cannot_be_evicted_do_not_fill_the_list() -> None:
    """With more pods than it holds, those that can be evicted come first, then those that wait longest."""
    stage = RejectedPodsHarness()
    for at in range(MAX_REFUSED_PODS):
        stage.rejected.record_rejection(a_start(f"bare-{at:02}", is_controlled=False), NO_RECORD)
    stage.now = 1.0
    stage.rejected.record_rejection(a_start("static", is_static=True), NO_RECORD)
    stage.rejected.record_rejection(a_start("owned"), NO_RECORD)
    named = stage.at(60)
    assert len(named) == MAX_REFUSED_PODS
    assert "owned" in named
    assert {"static", f"bare-{MAX_REFUSED_PODS - 1}"}.isdisjoint(named)


@pytest.mark.parametrize("first", ["start", "use"])
def test_pods_of_both_reporters_are_listed(first: Literal["start", "use"]) -> None:
    stage = RejectedPodsHarness()
    second: Literal["start", "use"] = "use" if first == "start" else "start"
    stage.publisher.set_reasons(first, {"a": "no_record"})
    stage.publisher.set_reasons(second, {"b": "over_limit"})
    assert stage.node.reasons == {"a": "no_record", "b": "over_limit"}
    stage.publisher.set_reasons(first, {})
    assert stage.node.reasons == {"b": "over_limit"}


def test_refusals_of_two_containers_count_as_one_refusal_of_the_pod() -> None:
    """The later refusal of the sidecar gives the reason, but does not start the delay again."""
    stage = RejectedPodsHarness()
    start = a_start()
    stage.rejected.record_rejection(start, NO_RECORD)
    sidecar = replace(start, allocation=replace(start.allocation, container="sidecar"))
    stage.now = 4.9
    stage.rejected.record_rejection(sidecar, LIMIT)
    assert stage.at(5) == {"u": "limit"}


def test_a_start_withdraws_the_refusal_of_its_own_container_only() -> None:
    """A sidecar that crashes and starts again and again does not keep a pod whose main container is refused."""
    stage = RejectedPodsHarness()
    start = a_start()
    stage.fence.hold_units("u", {"GPU-0": 4})
    sidecar = replace(start, allocation=DeviceAllocation("default", "p", "sidecar", frozenset({"GPU-0::1"})))
    stage.rejected.record_rejection(start, LIMIT)
    stage.rejected.record_rejection(sidecar, LIMIT)
    stage.rejected.withdraw_rejection(sidecar)
    assert stage.at(5) == {"u": "limit"}
    stage.rejected.withdraw_rejection(start)
    assert stage.node.reasons == {}


def test_a_refusal_by_the_hook_lasts_until_the_hook_allows_the_container() -> None:
    """Each try passes PreStart first: that says nothing of the hook's answer."""
    stage = RejectedPodsHarness()
    start = a_start()
    for stage.now in (0.0, 10.0):
        stage.rejected.withdraw_rejection(start)
        stage.rejected.record_hook_refusal(start.pod, "main", "the driver refused")
    stage.rejected.withdraw_rejection(start)
    assert stage.at(11) == {"u": "limit"}
    stage.rejected.withdraw_hook_refusal("u", "main")
    assert stage.node.reasons == {}


def test_a_pod_that_runs_or_has_ended_is_not_listed() -> None:
    """Kubelet may start a container without asking, and a pod may end while its start is decided."""
    stage = RejectedPodsHarness()
    runs, ended = a_start("runs"), a_start("ended")
    stage.pods.found["runs"] = replace(runs.pod, running_containers=frozenset({"main"}))
    stage.pods.ended.add("ended")
    for start in (runs, ended, a_start()):
        stage.rejected.record_rejection(start, NO_RECORD)
    assert stage.at(5) == {"u": "no_record"}


def test_many_pods_of_one_reporter_do_not_displace_those_of_another() -> None:
    """A tenant may have any number of bare pods refused; they must not hide a pod that uses too much or has a sick card."""
    stage = RejectedPodsHarness()
    for number in range(2 * MAX_REFUSED_PODS):
        stage.rejected.record_rejection(a_start(f"bare-{number}", is_controlled=False), NO_RECORD)
    stage.at(5)
    stage.publisher.set_reasons("use", {"greedy": "over_limit"})
    stage.publisher.set_reasons("health", {"sick": "card_unhealthy"})
    named = stage.node.reasons
    assert len(named) == MAX_REFUSED_PODS
    assert (named.get("greedy"), named.get("sick")) == ("over_limit", "card_unhealthy")
