"""Evicting those who may not start: when, how often, and what an API server may say to it."""

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
from vrampack.agent.kubelet.podresources import DeviceAllocation
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.events import EventRecorder

CARDS = card_facts(15)
REFUSED = RefusedStartError("no_record", "has no record")


@dataclass
class FakeEvictionApi:
    """Takes evictions as it is told to."""

    answers: list[Exception] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    async def evict(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:  # noqa: ARG002
        self.asked.append((namespace, name, uid))
        if self.answers:
            raise self.answers.pop(0)


class RejectedPodsHarness:
    """Refusals with a clock of the test's own and a pod without a record."""

    def __init__(self, *answers: Exception, mode: Literal["evict", "keep"] = "evict") -> None:
        self.now, self.evicted = 0.0, 0
        self.door = FakeEvictionApi(list(answers))
        self.refusals = RejectedPods(
            self.door,
            Fence("n"),
            EventRecorder(
                FakeKubeApi(), component="a", on_dropped=lambda _: None, clock=lambda: self.now, now=lambda: self.now
            ),
            cards=lambda: CARDS,
            on_evicted=self.count,
            clock=lambda: self.now,
            evict_after_seconds=30,
            action=mode,
        )

    def count(self) -> None:
        self.evicted += 1

    async def at(self, seconds: float) -> int:
        """Look at this time; how often an eviction was asked for so far."""
        self.now = seconds
        await self.refusals.evict_due_pods()
        return len(self.door.asked)


def a_start(pod: LocalPod | None = None) -> ContainerStart:
    local = pod or LocalPod(ledger_pod("p", node="n", uid="u"), {}, {}, is_static=False, is_controlled=True)
    return ContainerStart(DeviceAllocation("default", "p", "main", frozenset({"GPU-0::0"})), local)


async def test_it_is_evicted_by_its_uid_when_the_refusal_has_lasted() -> None:
    stage = RejectedPodsHarness()
    stage.refusals.record_rejection(a_start(), REFUSED)
    assert await stage.at(29.9) == 0
    assert await stage.at(30) == 1
    assert stage.door.asked == [("default", "p", "u")]
    assert stage.evicted == 1


async def test_the_first_refusal_counts_not_the_last() -> None:
    stage = RejectedPodsHarness()
    for stage.now in (0.0, 10.0, 29.0):
        stage.refusals.record_rejection(a_start(), REFUSED)
    assert await stage.at(30) == 1


AGAIN = {
    "a disruption budget": RefusedError(429, "TooManyRequests", "needs 3 pods"),
    "no answer": NoAnswerError("timed out"),
    "an error of the server": RefusedError(500, "InternalError", "etcd"),
}


@pytest.mark.parametrize("answer", AGAIN.values(), ids=AGAIN)
async def test_what_may_pass_is_tried_again_after_ten_seconds(answer: Exception) -> None:
    stage = RejectedPodsHarness(answer)
    stage.refusals.record_rejection(a_start(), REFUSED)
    assert [await stage.at(seconds) for seconds in (30, 39, 40)] == [1, 1, 2]
    assert stage.evicted == 1


GONE = {"gone": RefusedError(404, "NotFound", "p"), "another one": RefusedError(409, "Conflict", "uid")}


@pytest.mark.parametrize("answer", GONE.values(), ids=GONE)
async def test_a_pod_that_is_not_there_any_more_is_forgotten(answer: Exception) -> None:
    stage = RejectedPodsHarness(answer)
    stage.refusals.record_rejection(a_start(), REFUSED)
    assert [await stage.at(seconds) for seconds in (30, 60, 90)] == [1, 1, 1]
    assert stage.evicted == 0


async def test_once_evicted_it_is_not_evicted_again_while_it_ends() -> None:
    stage = RejectedPodsHarness()
    stage.refusals.record_rejection(a_start(), REFUSED)
    assert [await stage.at(seconds) for seconds in (30, 60, 3600)] == [1, 1, 1]


KEPT: dict[str, tuple[Literal["evict", "keep"], bool, bool]] = {
    "by setting": ("keep", True, False),
    "a bare pod": ("evict", False, False),
    "a static pod": ("evict", True, True),
}


@pytest.mark.parametrize(("mode", "is_controlled", "is_static"), KEPT.values(), ids=KEPT)
async def test_some_are_kept(mode: Literal["evict", "keep"], *, is_controlled: bool, is_static: bool) -> None:
    stage = RejectedPodsHarness(mode=mode)
    pod = replace(a_start().pod, is_controlled=is_controlled, is_static=is_static)
    stage.refusals.record_rejection(a_start(pod), REFUSED)
    assert await stage.at(3600) == 0


async def test_one_that_started_after_all_or_went_is_forgotten() -> None:
    stage = RejectedPodsHarness()
    stage.refusals.record_rejection(a_start(), REFUSED)
    stage.refusals.forget_pod("u")
    assert await stage.at(3600) == 0
