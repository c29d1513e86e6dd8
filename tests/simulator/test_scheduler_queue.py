"""When a waiting pod is tried, and which one first. Time is passed in as a number."""

from __future__ import annotations

from typing import Any

from vrampack.simulator.scheduling.scheduling_queue import QueuedPod, SchedulingQueue

LONG_AGO, NOW = 0.0, 100.0


def a_pod(name: str, priority: int = 0) -> dict[str, Any]:
    return {"metadata": {"uid": name, "namespace": "default", "name": name}, "spec": {"priority": priority}}


def a_queue(*pods: dict[str, Any]) -> SchedulingQueue:
    queue = SchedulingQueue()
    for pod in pods:
        queue.add_pod(pod)
    return queue


def popped(queue: SchedulingQueue, now: float = NOW) -> QueuedPod:
    entry = queue.pop_pod(now)
    assert entry is not None
    return entry


def order(queue: SchedulingQueue, now: float = NOW) -> list[str]:
    names = []
    while entry := queue.pop_pod(now):
        names.append(entry.name)
    return names


def refused(queue: SchedulingQueue, *, at: float, count: int = 1) -> None:
    for _ in range(count):
        queue.requeue_unschedulable(popped(queue, at), at)


def test_priority_goes_before_age() -> None:
    queue = a_queue(a_pod("old"), a_pod("older-than-high"), a_pod("high", 10), a_pod("higher", 20))
    assert order(queue) == ["higher", "high", "old", "older-than-high"]


def test_a_refused_pod_waits_for_a_change() -> None:
    queue = a_queue(a_pod("a"))
    refused(queue, at=NOW)
    assert queue.pop_pod(NOW + 299) is None
    assert queue.next_attempt_at() == NOW + 300
    queue.activate_all()
    assert order(queue, NOW) == ["a"]


def test_a_woken_pod_in_back_off_goes_behind_pods_that_have_not_failed() -> None:
    queue = a_queue(a_pod("a", 5))
    refused(queue, at=NOW)
    queue.add_pod(a_pod("new"))
    queue.activate_all()
    assert order(queue, NOW) == ["new", "a"]


def test_a_woken_pod_regains_its_rank_after_its_back_off() -> None:
    queue = a_queue(a_pod("a", 5))
    refused(queue, at=NOW)
    queue.add_pod(a_pod("new"))
    queue.activate_all()
    assert order(queue, NOW + 1) == ["a", "new"]


def test_among_woken_pods_priority_decides_within_a_second_of_back_off() -> None:
    queue = a_queue(a_pod("low"))
    refused(queue, at=NOW + 0.1)
    queue.add_pod(a_pod("high", 5))
    refused(queue, at=NOW + 0.2)
    queue.add_pod(a_pod("highest", 9))
    refused(queue, at=NOW + 1.1)
    queue.activate_all()
    assert order(queue, NOW + 0.3) == ["high", "low", "highest"]


def test_back_off_after_refusals_doubles_up_to_ten_seconds() -> None:
    queue = a_queue(a_pod("a"))
    at = LONG_AGO
    for seconds in (1, 2, 4, 8, 10, 10):
        refused(queue, at=at)
        queue.activate_all()
        assert queue.next_attempt_at() == at + seconds
        at += 1000


def test_back_off_stays_at_ten_seconds_however_often_a_pod_is_refused() -> None:
    queue = a_queue(a_pod("a"))
    for _ in range(2000):
        queue.activate_all()
        refused(queue, at=NOW)
    queue.activate_all()
    assert queue.next_attempt_at() == NOW + 10


def test_a_second_wake_up_changes_nothing() -> None:
    queue = a_queue(a_pod("a"))
    refused(queue, at=NOW)
    queue.activate_all()
    queue.activate_all()
    assert queue.next_attempt_at() == NOW + 1


def test_a_change_of_a_pod_wakes_only_that_pod() -> None:
    queue = a_queue(a_pod("a"), a_pod("b"))
    refused(queue, at=NOW, count=2)
    queue.add_pod(a_pod("b"))
    assert order(queue) == ["b"]


def test_a_change_while_the_pod_is_tried_is_not_missed() -> None:
    queue = a_queue(a_pod("a"))
    entry = popped(queue)
    queue.activate_all()
    queue.requeue_unschedulable(entry, NOW)
    assert order(queue) == ["a"]


def test_a_change_while_the_pod_is_tried_counts_once() -> None:
    queue = a_queue(a_pod("a"))
    entry = popped(queue)
    queue.activate_all()
    queue.requeue_unschedulable(entry, NOW)
    refused(queue, at=NOW)
    assert queue.pop_pod(NOW) is None


def test_a_change_before_the_attempt_causes_no_further_attempt() -> None:
    queue = a_queue(a_pod("a"))
    queue.add_pod(a_pod("a"))
    queue.activate_all()
    refused(queue, at=NOW)
    assert queue.pop_pod(NOW) is None


def test_back_off_after_an_error_is_not_shortened_by_changes() -> None:
    queue = a_queue(a_pod("a"))
    queue.requeue_failed(popped(queue), NOW)
    queue.activate_all()
    queue.add_pod(a_pod("a"))
    assert queue.pop_pod(NOW + 0.9) is None
    assert order(queue, NOW + 1) == ["a"]


def test_a_refusal_resets_the_back_off_for_errors() -> None:
    queue = a_queue(a_pod("a"))
    queue.requeue_failed(popped(queue), LONG_AGO)
    queue.requeue_failed(popped(queue, LONG_AGO + 1), LONG_AGO + 1)
    refused(queue, at=LONG_AGO + 3)
    queue.activate_all()
    queue.requeue_failed(popped(queue), NOW)
    assert queue.next_attempt_at() == NOW + 1


def test_a_failed_pod_is_requeued_at_the_end() -> None:
    queue = a_queue(a_pod("a"), a_pod("b"))
    queue.requeue_failed(popped(queue, LONG_AGO), LONG_AGO)
    assert order(queue) == ["b", "a"]


def test_a_removed_or_placed_pod_leaves_the_queue() -> None:
    queue = a_queue(a_pod("a"), a_pod("b"))
    queue.remove_pod("a")
    assert popped(queue).name == "b"
    assert queue.pop_pod(NOW) is None
    assert queue.next_attempt_at() is None
