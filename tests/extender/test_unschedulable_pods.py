"""What is remembered of refused pods, and for how long."""

from __future__ import annotations

import pytest

from extender.requeue import unschedulable_pods
from extender.requeue.unschedulable_pods import UnschedulablePods
from tests.support.builders import ledger_pod
from vrampack.cards.pod import Pod


def list_pending_names(book: UnschedulablePods, *pods: Pod, now: float = 0.0) -> list[str]:
    known = {pod.uid: pod for pod in pods}
    return [pod.name for pod, _ in book.drop_resolved_pods(known.get, now)]


def refused(*uids: str) -> UnschedulablePods:
    book = UnschedulablePods()
    for uid in uids:
        book.reject_pod(uid, 1, 0.0)
    return book


GONE = {
    "bound": ledger_pod("a", node="n"),
    "leaving": ledger_pod("a", leaving=True),
    "finished": ledger_pod("a", finished=True),
}


@pytest.mark.parametrize("pod", GONE.values(), ids=GONE)
def test_a_pod_that_no_longer_waits_is_forgotten(pod: Pod) -> None:
    book = refused("a")
    assert list_pending_names(book, pod) == []
    assert "a" not in book


def test_a_pod_that_was_known_and_is_gone_is_forgotten() -> None:
    book = refused("a")
    assert list_pending_names(book, ledger_pod("a")) == ["a"]
    assert list_pending_names(book) == []
    assert "a" not in book


def test_a_pod_that_is_not_known_yet_is_remembered_as_long_as_a_watch_may_be_late() -> None:
    book = refused("a")
    assert list_pending_names(book, now=300.0) == []
    assert list_pending_names(book, ledger_pod("a"), now=300.0) == ["a"]
    other = refused("b")
    assert list_pending_names(other, now=300.1) == []
    assert "b" not in other


def test_the_oldest_refusal_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was refused again is the newest."""
    monkeypatch.setattr(unschedulable_pods, "MAX_UNSCHEDULABLE_PODS", 2)
    book = refused("a", "b", "a", "c")
    assert [uid for uid in "abc" if uid in book] == ["a", "c"]


def test_an_avoided_node_is_offered_again_after_the_back_off() -> None:
    """5 s after the first failure, 10 s after the second: a node that fails meanwhile is added; later, the earlier ones are dropped."""
    book = refused("a")
    refusal = book.get_rejection("a")
    assert refusal is not None
    refusal.back_off_node("n", 0.0)
    refusal.back_off_node("m", 4.0)
    assert (refusal.backs_off_until, refusal.avoided_nodes) == (14.0, frozenset({"n", "m"}))
    refusal.back_off_node("o", 14.0)
    assert (refusal.backs_off_until, refusal.avoided_nodes) == (34.0, frozenset({"o"}))


def test_another_rejection_clears_no_failure() -> None:
    book = refused("a")
    refusal = book.get_rejection("a")
    assert refusal is not None
    refusal.back_off_node("n", 0.0)
    book.reject_pod("a", 7, 1.0)
    fresh = book.get_rejection("a")
    assert fresh is not None
    assert (fresh.seen_generation, fresh.failures, fresh.backs_off_until, fresh.avoided_nodes) == (
        7,
        1,
        5.0,
        frozenset({"n"}),
    )
