"""How much a container may use, as the back ends learn it: from its pod's record, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.scripted_driver import scripted_gpu
from vrampack.agent.admission.pod_workload import PodWorkload
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.limits.cgroups import CgroupOwner, CgroupTree
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved
from vrampack.agent.nvml.driver import Gpu
from vrampack.cards.node import CardFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, UnreadableRecord
from vrampack.cards.request import CardRequest, ContainerRequest, PodRequest


@dataclass(frozen=True)
class FakeDetection:
    """One V100 of 15 units."""

    cards: tuple[CardFacts, ...] = (CardFacts(0, 15, 16130, "GPU-0"),)
    gpus: Mapping[str, Gpu] = field(default_factory=lambda: {"GPU-0": scripted_gpu()})
    driver_version: str = "580.95.05"
    has_confidential_computing: bool = False

    def find_presence(self, uuid: str) -> CardPresence:  # noqa: ARG002 - the same for all
        return CardPresence.LISTED


class FakeWatchedPods(dict[str, LocalPod]):
    """The pods that the watch shows, by uid."""

    def find_pod(self, uid: str) -> LocalPod | None:
        return self.get(uid)

    def list_pods(self) -> Iterable[LocalPod]:
        return self.values()


def a_workload(pods: Mapping[str, LocalPod]) -> PodWorkload:
    return a_watching_workload(FakeWatchedPods(pods))


def a_watching_workload(pods: FakeWatchedPods) -> PodWorkload:
    return PodWorkload(pods, FakeDetection(), CgroupTree(Path("/sys/fs/cgroup")))


OURS = {
    "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4,"whole":false}],'
    '"containers":{"main":[{"uuid":"GPU-0","units":4,"mib":4301}]}}',
    "visible-devices.vrampack.dev/main": "GPU-0",
    "limit-mib.vrampack.dev/main": "4301",
}

LIMITS: dict[str, tuple[Mapping[str, str], Record | UnreadableRecord | None, Mapping[str, int] | None]] = {
    "its record says": (OURS, Record("vrampack", (Share(4, "GPU-0", 0),)), {"GPU-0": 4301}),
    "a previous plugin's has none": ({}, Record("gpushare-v2", (Share(4, index=0),)), {}),
    "no record, no start": ({}, None, None),
    "a damaged one, no start": ({}, UnreadableRecord("vrampack.dev/allocation", "not JSON"), None),
}


@pytest.mark.parametrize(("annotations", "record", "want"), LIMITS.values(), ids=LIMITS)
def test_the_record_sets_the_limit_of_a_container(
    annotations: Mapping[str, str], record: Record | UnreadableRecord | None, want: Mapping[str, int] | None
) -> None:
    pod = LocalPod(Pod("uid", "ml", "a", record=record), annotations, {}, is_static=False, is_controlled=True)
    assert a_workload({"uid": pod}).get_limits_mib("uid", "main") == want


def changed(pod: LocalPod, *, uuid: str = "GPU-0", units: int = 4, mib: int = 4301) -> LocalPod:
    text = (
        OURS["vrampack.dev/allocation"]
        .replace('"mib":4301', f'"mib":{mib}')
        .replace('"units":4,"mib"', f'"units":{units},"mib"')
    )
    annotations = {
        "vrampack.dev/allocation": text.replace("GPU-0", uuid),
        "visible-devices.vrampack.dev/main": uuid,
        "limit-mib.vrampack.dev/main": str(mib),
    }
    return replace(pod, annotations=annotations)


ASK = PodRequest(CardRequest(4), (ContainerRequest("main", "main", 0, 4),))
ADMITTED = LocalPod(
    Pod("uid", "ml", "a", record=Record("vrampack", (Share(4, "GPU-0", 0),)), request=ASK),
    OURS,
    {},
    is_static=False,
    is_controlled=True,
)
SHOWN = {
    "nothing yet": (None, {"GPU-0": 4301}),
    "the same": (changed(ADMITTED), {"GPU-0": 4301}),
    "less, since somebody changed it": (changed(ADMITTED, mib=2000), {"GPU-0": 2000}),
    "more than the units stand for": (changed(ADMITTED, mib=4302), {"GPU-0": 4301}),
    "other units": (changed(ADMITTED, units=3, mib=2000), {"GPU-0": 4301}),
    "the card of before the correction": (changed(ADMITTED, uuid="GPU-1", mib=4000), {"GPU-0": 4301}),
    "no record any more": (replace(ADMITTED, annotations={}), {"GPU-0": 4301}),
}


@pytest.mark.parametrize(("shown", "want"), SHOWN.values(), ids=SHOWN)
def test_only_limit_changes_of_an_admitted_pod_are_followed(shown: LocalPod | None, want: Mapping[str, int]) -> None:
    """What passed the fence counts, whatever a lagging watch shows, and whatever record the fence refuses."""
    pods = {"uid": shown} if shown is not None else {}
    workload = a_workload(pods)
    workload.record_admitted(ADMITTED)
    assert workload.get_limits_mib("uid", "main") == want


def test_watched_record_counts_for_a_pod_that_this_agent_did_not_admit() -> None:
    """After a restart of the agent: the pod runs, and what it has is counted."""
    pod = changed(ADMITTED, mib=9000)
    assert a_workload({"uid": pod}).get_limits_mib("uid", "main") == {"GPU-0": 9000}


ID = "1a" * 32
SIDE = ContainerRequest("side", "init", 0, 4)
TWO = replace(ADMITTED, pod=replace(ADMITTED.pod, request=replace(ASK, containers=(SIDE, *ASK.containers))))
OLDER = replace(ADMITTED, pod=replace(ADMITTED.pod, record=Record("gpushare-v2", (Share(4, index=0),))))
NAMED: dict[str, tuple[LocalPod | None, ResolvedContainer | Unresolved]] = {
    "of no known pod": (None, Unresolved.UNKNOWN_OWNER),
    "the only one that asks, before the status names it": (ADMITTED, ResolvedContainer("main", {"GPU-0": 4301})),
    "one of two, before the status names it": (TWO, Unresolved.NAME_PENDING),
    "one of two": (
        replace(TWO, container_ids={"main": f"containerd://{ID}"}),
        ResolvedContainer("main", {"GPU-0": 4301}),
    ),
    "one that has no card": (replace(TWO, container_ids={"web": f"containerd://{ID}"}), ResolvedContainer("web", {})),
    "a previous plugin's": (OLDER, Unresolved.UNLIMITED),
    "a pod without a record": (replace(ADMITTED, pod=replace(ADMITTED.pod, record=None)), Unresolved.UNKNOWN_OWNER),
}


@pytest.mark.parametrize(("pod", "want"), NAMED.values(), ids=NAMED)
def test_container_is_identified_by_its_pods_status(pod: LocalPod | None, want: ResolvedContainer | Unresolved) -> None:
    assert a_workload({} if pod is None else {"uid": pod}).resolve_container(CgroupOwner("uid", ID)) == want


def test_container_name_that_appears_in_the_status_later_is_used() -> None:
    pods = FakeWatchedPods(uid=TWO)
    workload = a_watching_workload(pods)
    assert workload.resolve_container(CgroupOwner("uid", ID)) is Unresolved.NAME_PENDING
    pods["uid"] = replace(TWO, container_ids={"main": f"containerd://{ID}"})
    assert workload.resolve_container(CgroupOwner("uid", ID)) == ResolvedContainer("main", {"GPU-0": 4301})


def test_unknown_pod_may_use_nothing() -> None:
    assert a_workload({}).get_limits_mib("uid", "main") is None


def test_container_with_the_library_of_another_back_end_runs_unlimited() -> None:
    assert a_workload({"uid": ADMITTED}).resolve_leftover(CgroupOwner("uid", ID)) is Unresolved.UNLIMITED
