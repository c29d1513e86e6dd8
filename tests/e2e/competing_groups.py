"""Two groups of pods that want the same cards: sums of memory fit both, cards fit one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.pod_placements import read_refusal, wait_until_bound
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card

Pod = dict[str, Any]  # Any: a pod as the API server takes it
MakeGroup = Callable[[str, int], Callable[[Pod], Pod]]
"""Makes a group of this name and minimum. Returns what puts a pod into it."""

AT_ONCE = {"gracePeriodSeconds": 0}
CARD_UNITS, UNITS = 16, 9
CARDS, MEMBERS = 4, 3
"""64 units for two groups of 27, but one card for each pod."""
REFUSAL = "its group does not fit"
WHOLE_SECONDS = 20
"""Kubernetes' own groups are tried again after at most 10 s, whatever happens."""
FILTERED = 'vrampack_extender_request_duration_seconds_count{{result="{}",verb="filter"}}'


class CompetingGroups:
    """One node, on which two groups compete as often as a test says."""

    def __init__(
        self, cluster: ControlPlane, extender: ExtenderProgram, make_group: MakeGroup, *, tries: int = 1
    ) -> None:
        """`tries`: how often the scheduler tries both groups while half of the cards are free; more than once if it does so by itself."""
        self._cluster = cluster
        self._extender = extender
        self._make_group = make_group
        self._tries = tries
        add_gpu_node(cluster, CARDS)

    def run_round(self, number: int) -> None:
        """Both wait while all cards are in use. These get free in two steps, half a group's first; then the first group ends."""
        occupants = [self._create(pod_manifest(f"occupant-{number}-{card}", UNITS)) for card in range(CARDS)]
        for name in occupants:
            wait_until_bound(self._cluster, name)
        with self._both_tried():
            groups = {name: self._create_members(name) for name in (f"a-{number}", f"b-{number}")}
        with self._both_tried(self._tries):
            self._end(occupants[: CARDS // 2])
        self._end(occupants[CARDS // 2 :])
        first, second = self._wait_for_whole_group(groups)
        assert self._count_bound(groups[second]) == 0
        self._cluster.wait_until(
            lambda: all(REFUSAL in read_refusal(self._cluster, name) for name in groups[second]), WHOLE_SECONDS
        )
        self._end(groups.pop(first))
        self._wait_for_whole_group(groups)
        self._end(groups[second])

    def _create(self, pod: Pod) -> str:
        return str(self._cluster.request_ok("POST", PODS, pod)["metadata"]["name"])

    def _create_members(self, group: str) -> list[str]:
        join = self._make_group(group, MEMBERS)
        return [self._create(join(pod_manifest(f"{group}-{number}", UNITS))) for number in range(MEMBERS)]

    @contextmanager
    def _both_tried(self, times: int = 1) -> Iterator[None]:
        """Ends when the scheduler has asked about as many pods since it began as both groups have, so often."""
        before = count_filters(self._extender)
        yield
        self._cluster.wait_until(
            lambda: count_filters(self._extender) >= before + times * 2 * MEMBERS,
            WHOLE_SECONDS,
            what="both groups are tried",
        )

    def _wait_for_whole_group(self, groups: dict[str, list[str]]) -> list[str]:
        """The names of the groups, once one has all of its pods bound: that one first."""

        def sort_by_bound() -> list[str]:
            names = sorted(groups, key=lambda group: -self._count_bound(groups[group]))
            return names if self._count_bound(groups[names[0]]) == MEMBERS else []

        return self._cluster.wait_until(
            sort_by_bound,
            WHOLE_SECONDS,
            what=lambda: f"a group is whole: {[self._describe(name) for each in groups.values() for name in each]}",
        )

    def _count_bound(self, names: list[str]) -> int:
        pods = [self._cluster.request_ok("GET", f"{PODS}/{name}") for name in names]
        return sum("nodeName" in pod["spec"] for pod in pods)

    def _describe(self, name: str) -> str:
        return f"{name} {'' if self._count_bound([name]) else read_refusal(self._cluster, name)}"

    def _end(self, names: list[str]) -> None:
        for name in names:
            self._cluster.request_ok("DELETE", f"{PODS}/{name}", AT_ONCE)


def count_filters(extender: ExtenderProgram) -> float:
    """How often the scheduler has asked about a pod."""
    return sum(read_metric(extender, FILTERED.format(result)) for result in ("ok", "no"))


def add_gpu_node(
    cluster: ControlPlane, cards: int, *, name: str = "gpu-0", labels: Mapping[str, str] | None = None
) -> None:
    published = (
        published_card(index, units=CARD_UNITS, memory_mib=CARD_UNITS * 1024, uuid=f"GPU-{name}-{index}")
        for index in range(cards)
    )
    cluster.add_node(name, cards=cards_annotation(*published, injection="cdi"), labels=labels)
