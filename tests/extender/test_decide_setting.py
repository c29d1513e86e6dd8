"""Which verb names the node, and what becomes of a node on which a pod fails late."""

from __future__ import annotations

import pytest

from extender.scheduling.node_backoff import BACKOFF, MAX_PODS, NodeBackoff
from extender.settings import DecidingVerb
from tests.extender.scheduler_harness import SchedulerHarness
from vrampack.kube.errors import NoAnswerError, RefusedError

TOKEN = {"name": "kube-api-access", "projected": {"sources": []}}
TERM = {"weight": 1, "preference": {}}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [TERM]}
REQUIRED: dict[str, object] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
SPECS: dict[str, tuple[dict[str, object], bool]] = {
    "nothing": ({}, False),
    "the volume of every pod": ({"volumes": [TOKEN]}, False),
    "files": ({"volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]}, False),
    "a claim": ({"volumes": [TOKEN, {"name": "a", "persistentVolumeClaim": {"claimName": "x"}}]}, True),
    "an ephemeral claim": ({"volumes": [{"name": "a", "ephemeral": {}}]}, True),
    "an unknown kind of volume": ({"volumes": [{"name": "a", "tape": {}}]}, True),
    "a resource claim": ({"resourceClaims": [{"name": "a"}]}, True),
    "no resource claims": ({"resourceClaims": []}, False),
    "required affinity": ({"affinity": {"nodeAffinity": REQUIRED}}, False),
    "preferred nodes": ({"affinity": {"nodeAffinity": PREFERRED}}, True),
    "preferred pods": ({"affinity": {"podAffinity": PREFERRED}}, True),
    "preferably without pods": ({"affinity": {"podAntiAffinity": PREFERRED}}, True),
    "hard spread": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, False),
    "soft spread": ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True),
    "spread of an unknown kind": ({"topologySpreadConstraints": [{}]}, True),
    "nulls": ({"volumes": None, "affinity": {"nodeAffinity": None}, "topologySpreadConstraints": None}, False),
    "preferred nodes, in capitals": ({"AFFINITY": {"NODEAFFINITY": PREFERRED}}, True),
}


@pytest.mark.parametrize(("spec", "prefers"), SPECS.values(), ids=SPECS)
def test_auto_lets_the_scheduler_score_where_a_pod_prefers_nodes(spec: dict[str, object], prefers: bool) -> None:  # noqa: FBT001 - a table
    assert SchedulerHarness({"a": [15], "b": [8]}, decide="auto").filter_names("p", spec=spec) == (
        ["a", "b"] if prefers else ["b"]
    )


MODES: dict[DecidingVerb, list[str]] = {"prioritize": ["a", "b", "c"], "filter": ["b"], "auto": ["b"]}


@pytest.mark.parametrize(("decide", "passed"), MODES.items(), ids=MODES)
def test_filter_names_the_best_node_where_it_decides(decide: DecidingVerb, passed: list[str]) -> None:
    """`b` is the tightest; `d` is too small and rejected in every mode, `a` and `c` are never called a failure."""
    answer = SchedulerHarness({"a": [15], "b": [8], "c": [16], "d": [2]}, decide=decide).post_filter("p")
    assert answer["NodeNames"] == passed
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == {"d": "larger than any card"}


def test_the_node_named_by_filter_is_the_one_that_prioritize_would_name() -> None:
    for units in range(1, 17):
        shape = {"a": [15, 3], "b": [8, 8], "c": [16], "d": [4, 9]}
        assert SchedulerHarness(shape, decide="filter").filter_names("p", units) == [
            SchedulerHarness(shape).filter_and_prioritize("p", units)
        ]


def test_a_nominated_node_alone_is_accepted_or_rejected() -> None:
    desk = SchedulerHarness({"a": [15], "b": [8]}, decide="filter")
    assert desk.filter_names("p", names=["a"]) == ["a"]
    assert desk.filter_names("p", 9, names=["b"]) == []


def test_a_node_chosen_but_not_bound_comes_last_for_that_pod() -> None:
    desk = SchedulerHarness({"a": [8], "b": [15], "c": [16]}, decide="filter")
    assert desk.filter_names("p") == ["a"]
    assert desk.filter_names("p") == ["b"]
    assert desk.filter_names("p") == ["c"]
    assert desk.filter_names("another") == ["a"]


def test_a_node_chosen_but_not_bound_is_better_than_none() -> None:
    desk = SchedulerHarness({"a": [8]}, decide="filter")
    assert [desk.filter_names("p") for _ in range(3)] == [["a"]] * 3


def test_prioritize_avoids_a_node_on_which_the_pod_failed() -> None:
    desk = SchedulerHarness({"a": [8], "b": [15]})
    assert [desk.filter_and_prioritize("p") for _ in range(2)] == ["a", "b"]


def test_a_failed_node_recovers_its_rank_after_a_while() -> None:
    """And better again than `c`, on which the pod never failed."""
    desk = SchedulerHarness({"a": [8], "b": [15], "c": [16]}, decide="filter")
    assert desk.filter_names("p") == ["a"]
    assert desk.filter_names("p") == ["b"]
    desk.parts.soft_reservations.release_pod("p")
    desk.seconds += 2 * BACKOFF.first_seconds
    assert desk.filter_names("p") == ["a"]


def test_each_failure_is_remembered_longer_and_a_bind_forgets_them() -> None:
    seconds = 0.0
    attempts = NodeBackoff(lambda: seconds)
    waited = []
    for _ in range(6):
        attempts.record_target("p", "a")
        attempts.back_off_target("p")
        begun = seconds
        while attempts.list_avoided_nodes("p"):
            seconds += 10
        waited.append(seconds - begun)
    assert waited == [30, 60, 120, 240, 300, 300]
    attempts.record_target("p", "a")
    attempts.forget_pod("p")
    attempts.back_off_target("p")
    assert attempts.list_avoided_nodes("p") == frozenset()


def test_a_node_that_failed_long_ago_is_forgotten() -> None:
    """A pod that fails on one node after another must not remember them all."""
    seconds = 0.0
    attempts = NodeBackoff(lambda: seconds)
    for number in range(100):
        attempts.record_target("p", f"n{number}")
        attempts.back_off_target("p")
        attempts.list_avoided_nodes("p")
        seconds += 10
    assert len(attempts._pods["p"].avoided_nodes) <= 1 + (BACKOFF.first_seconds + BACKOFF.longest_seconds) / 10


async def test_a_failed_bind_counts_against_the_node_it_was_called_for() -> None:
    """The scheduler's own scores took `b` instead of `a`."""
    desk = SchedulerHarness({"a": [8], "b": [8], "c": [15]})
    desk.add_pending_pod("p")
    assert desk.filter_and_prioritize("p") == "a"
    desk.api.bind_errors.append(RefusedError(422, "Invalid", "no"))
    assert "422" in await desk.bind("p", "b")
    assert desk.filter_and_prioritize("p") == "a"


async def test_an_api_server_failure_does_not_count_against_the_node() -> None:
    desk = SchedulerHarness({"a": [8], "b": [15]}, decide="filter")
    desk.add_pending_pod("p")
    failures = [RefusedError(429, "TooManyRequests", "later"), NoAnswerError("503")]
    for error in (*failures, RefusedError(401, "Unauthorized", "who?"), RefusedError(403, "Forbidden", "may not")):
        assert desk.filter_names("p") == ["a"]
        desk.api.bind_errors.append(error)
        assert await desk.bind("p", "a")
    assert desk.filter_names("p") == ["a"]


async def test_a_binding_forbidden_twice_counts_against_the_node() -> None:
    """A webhook may refuse all Bindings of this node, and then no other one succeeds in between."""
    desk = SchedulerHarness({"a": [8], "b": [15]}, decide="filter")
    desk.add_pending_pod("p")
    for _ in range(2):
        assert desk.filter_names("p") == ["a"]
        desk.api.bind_errors.append(RefusedError(403, "Forbidden", "a webhook says no"))
        assert await desk.bind("p", "a")
    assert desk.filter_names("p") == ["b"]


async def test_api_server_failures_limited_to_one_node_count_against_it() -> None:
    """Others are bound in between: pods must not be sent there for ever."""
    desk = SchedulerHarness({"a": [4], "b": [15]}, decide="filter")
    for name in ("p", "other", "another"):
        desk.add_pending_pod(name)
    for other in ("other", "another"):
        assert desk.filter_names("p") == ["a"]
        desk.api.bind_errors.append(RefusedError(429, "TooManyRequests", "later"))
        assert await desk.bind("p", "a")
        desk.seconds += 1
        assert await desk.bind(other, "b") == ""
        desk.seconds += 1
    assert desk.filter_names("p") == ["b"]


@pytest.mark.parametrize("decide", ["prioritize", "filter"])
async def test_the_node_with_an_unanswered_binding_comes_first(decide: DecidingVerb) -> None:
    """Its place is there; on another node, bind would first have to fence it."""
    desk = SchedulerHarness({"a": [8], "b": [15]}, decide=decide)
    desk.add_pending_pod("p")
    desk.api.bind_errors.append(NoAnswerError("503"))
    assert (await desk.bind("p", "b")).startswith("bind outcome unknown")
    assert desk.filter_and_prioritize("p") == "b"
    assert desk.filter_names("another") == ["a", "b"] if decide == "prioritize" else ["a"]


def test_made_up_pods_do_not_fill_the_memory() -> None:
    attempts = NodeBackoff(lambda: 0.0)
    for number in range(MAX_PODS + 10):
        attempts.record_target(str(number), "a")
    attempts.back_off_target("0")
    assert attempts.list_avoided_nodes("0") == frozenset()
    assert len(attempts._pods) == MAX_PODS
