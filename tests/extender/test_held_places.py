"""A pod that may be bound late keeps the place that its scheduler was told of, from the choice of its node to its bind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.scheduling.named_places import SILENT_SECONDS
from extender.settings import HoldSettings
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod
from vrampack.cards.pod import Pod

CLAIM: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
NO_ROOM = "node a: no card with enough free memory; nothing was bound"


def list_held(desk: SchedulerHarness) -> dict[str, tuple[str, list[int]]]:
    """Node and cards by pod."""
    return {
        held.pod.uid: (held.node_name, held.allocation.card_indices) for held in desk.ledger.places.list_held_places()
    }


def list_ends(desk: SchedulerHarness) -> list[str]:
    return [how for how, count in desk.ledger.places.holds_ended.items() for _ in range(count)]


def hold(desk: SchedulerHarness, name: str = "late", units: int = 10, *, version: str = "5") -> Pod:
    """The place of a pod with a claim, as filter alone or prioritize names it."""
    pod = replace(ledger_pod(name, units=units), resource_version=version)
    desk.ledger.update_pod(pod)
    assert desk.filter_names(name, units, spec=CLAIM, metadata={"resourceVersion": version}) == ["a"]
    return pod


LATE_SPECS: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "a claim": (CLAIM, {}, True),
    "an ephemeral volume": ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, {}, True),
    "a resource claim": ({"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]}, {}, True),
    "a group of Kubernetes": ({"schedulingGroup": {"podGroupName": "g"}}, {}, True),
    "a group of Kubernetes 1.35": ({"workloadRef": {"name": "w", "podGroup": "g"}}, {}, True),
    "a group of Coscheduling": ({}, {"scheduling.x-k8s.io/pod-group": "g"}, True),
    "volumes that are there": ({"volumes": [{"name": "t", "projected": {}}, {"name": "e", "emptyDir": {}}]}, {}, False),
    "nothing of the kind": ({}, {}, False),
}


@pytest.mark.parametrize(("spec", "labels", "is_held"), LATE_SPECS.values(), ids=LATE_SPECS)
def test_places_are_held_for_pods_that_may_be_bound_late(
    spec: dict[str, Any], labels: dict[str, str], *, is_held: bool
) -> None:
    desk = SchedulerHarness({"a": [15]})
    desk.filter_names("late", 10, spec=spec, metadata={"labels": labels})
    assert list_held(desk) == ({"late": ("a", [0])} if is_held else {})
    assert bool(desk.parts.soft_reservations.list_active()) != is_held
    assert desk.filter_names("other", 10) == ([] if is_held else ["a"])


def test_all_pods_of_a_scheduler_that_settings_name_are_held() -> None:
    desk = SchedulerHarness({"a": [15]}, holds=HoldSettings(schedulers=("vrampack",)))
    desk.filter_names("late", 10)
    assert list_held(desk) == {"late": ("a", [0])}


async def test_a_held_place_counts_as_used_for_every_other_pod_and_its_own_bind_takes_it() -> None:
    desk = SchedulerHarness({"a": [15, 15], "b": [15]})
    desk.add_bound_pod("on 1", "a", 2, card=1)
    assert desk.filter_and_prioritize("late", 10, spec=CLAIM) == "a"
    assert list_held(desk) == {"late": ("a", [1])}
    desk.seconds += 600  # far longer than a soft reservation
    assert desk.filter_and_prioritize("small", 5) == "b"
    assert desk.filter_names("large", 13) == ["a", "b"]
    assert desk.choose_cards("large", "a", 13) == [0]
    desk.add_bound_pod("large", "a", 13, card=0)
    desk.add_pending_pod("third", 10)
    assert await desk.bind("third", "a") == NO_ROOM
    desk.ledger.remove_pod("on 1")  # other cards are free now, and it keeps its own
    assert await desk.bind("late", "a", CLAIM) == ""
    (reserved,) = [each for each in desk.ledger.places.list_reservations() if each.pod.uid == "late"]
    assert reserved.allocation.card_indices == [1]
    assert (list_held(desk), list_ends(desk)) == ({}, ["bound"])


async def test_a_bind_to_another_node_moves_the_place() -> None:
    desk = SchedulerHarness({"a": [15], "b": [15]})
    assert desk.filter_and_prioritize("late", 10, spec=CLAIM) == "a"
    assert await desk.bind("late", "b", CLAIM) == ""
    assert desk.filter_names("other", 15) == ["a"]


async def test_a_bind_that_fails_ends_the_attempt() -> None:
    desk = SchedulerHarness({"a": [15]})
    hold(desk)
    assert "does not exist" in await desk.bind("late", "unknown", CLAIM)
    assert list_ends(desk) == ["failed"]
    assert desk.filter_names("other", 15) == ["a"]


def test_each_filter_of_its_pod_decides_again() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    hold(desk)
    desk.filter_names("late", 10, spec=CLAIM)
    assert (list_held(desk), list_ends(desk)) == ({"late": ("a", [0])}, ["filtered"])
    assert desk.filter_names("late", 10, names=["another"], spec=CLAIM) == []
    assert list_held(desk) == {}


ENDS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a label is written": ([{}], ""),
    "the scheduler nominates it there": ([{"nominated_node": "a"}], ""),
    "and ends that": ([{"nominated_node": "a"}, {"nominated_node": ""}], "failed"),
    "it is nominated elsewhere": ([{"nominated_node": "b"}], "failed"),
    "another reason why it was not placed": ([{"failed_attempt": "volume"}], "failed"),
    "it is deleted": ([{"is_terminating": True}], "failed"),
    "it is bound": ([{"node_name": "b"}], "bound"),
    "it has finished": ([{"is_finished": True}], "gone"),
}


@pytest.mark.parametrize(("states", "how"), ENDS.values(), ids=ENDS)
def test_a_hold_ends_when_its_pod_shows_that_the_attempt_is_over(states: list[dict[str, Any]], how: str) -> None:
    desk = SchedulerHarness({"a": [15]})
    pod = hold(desk)
    for version, fields in enumerate(states, start=6):
        pod = replace(pod, resource_version=str(version), **fields)
        desk.ledger.update_pod(pod)
    assert list_ends(desk) == ([how] if how else [])
    assert desk.filter_names("other", 15) == (["a"] if how else [])


def test_an_earlier_state_of_its_pod_ends_no_hold() -> None:
    """The scheduler's watch may be ahead of ours."""
    desk = SchedulerHarness({"a": [15]})
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": "9"}) == ["a"]
    desk.ledger.update_pod(replace(ledger_pod("late", units=10), resource_version="8", failed_attempt="earlier"))
    assert list_held(desk) == {"late": ("a", [0])}


@pytest.mark.parametrize(("is_known", "seconds", "how"), [(True, 1000, "expired"), (False, 120, "gone")])
def test_a_hold_ends_in_time_and_one_of_a_pod_that_was_deleted_before_soon(
    *, is_known: bool, seconds: float, how: str
) -> None:
    """A ledger that is fresh would know the pod by then."""
    desk = SchedulerHarness({"a": [15]}, holds=HoldSettings(max_seconds=1000))
    if is_known:
        hold(desk)
    else:
        desk.filter_names("late", 10, spec=CLAIM)
    desk.seconds += seconds - 1
    desk.parts.places.end_old_holds()
    assert list_ends(desk) == []
    desk.seconds += 1
    desk.parts.places.end_old_holds()
    assert list_ends(desk) == [how]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_hold_lasts_no_longer_than_its_pod(*, is_listed: bool) -> None:
    desk = SchedulerHarness({"a": [15]})
    if is_listed:
        hold(desk)
    else:
        desk.filter_names("late", 10, spec=CLAIM)  # no watch has shown the pod
    baseline = desk.ledger.begin_list()
    desk.ledger.end_list(baseline, set())
    assert list_ends(desk) == ["gone"]


def test_a_pod_that_holds_its_place_is_not_counted_again_as_a_nominee() -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    pod = hold(desk)
    desk.ledger.update_pod(replace(pod, resource_version="6", nominated_node="a"))
    assert desk.filter_names("other", 15) == ["a"]
    assert list(desk.parts.placements_view.build_json()["nominations"]) == []


async def test_a_held_pod_may_be_preempted() -> None:
    """The scheduler has it on its node; one that is only reserved is never named."""
    desk = SchedulerHarness({"a": [15, 15]})
    hold(desk)
    desk.add_bound_pod("victim", "a", 8, card=1)
    assert await desk.preempt("urgent", 15, {"a": ["late"]}, priority=5) == {"a": ["late"]}
    assert await desk.preempt("urgent", 15, {"a": []}, priority=5) == {"a": ["victim"]}
    desk.ledger.remove_pod("victim")
    desk.add_bound_pod("large", "a", 13, card=1)
    assert await desk.preempt("urgent", 15, {"a": []}, priority=5) == {"a": ["late"]}


def test_after_a_restart_a_nomination_is_held_again() -> None:
    """Kubernetes 1.35 and later nominate a pod while it waits. A pod that waits for nothing is nominated by preemption."""
    desk = SchedulerHarness({"a": [15, 15]})
    for name, is_late in (("late", True), ("preemptor", False)):
        pod = replace(ledger_pod(name, units=15), nominated_node="a", may_bind_late=is_late, resource_version="5")
        desk.ledger.update_pod(pod)
    desk.parts.places.restore_holds(desk.parts.engine)
    assert list(list_held(desk)) == ["late"]
    (held,) = desk.ledger.places.list_held_places()
    desk.ledger.update_pod(replace(held.pod, resource_version="6", nominated_node=""))
    assert list_held(desk) == {}


def test_after_a_change_of_the_leader_a_nomination_is_held() -> None:
    """The scheduler that nominated the pod called another extender, and the next one may try a more important pod first."""
    desk = SchedulerHarness({"a": [15]})
    desk.add_pending_pod("urgent", units=10, priority=9)
    assert desk.filter_names("urgent", 10) == ["a"]
    desk.seconds += SILENT_SECONDS
    late = replace(ledger_pod("late", units=10), nominated_node="a", may_bind_late=True, resource_version="5")
    desk.ledger.update_pod(late)
    assert desk.filter_names("urgent", 10) == []
    assert list_held(desk) == {"late": ("a", [0])}


NOMINEE = replace(ledger_pod("late", units=10, version="6"), nominated_node="a", may_bind_late=True)
QUIET = pytest.mark.parametrize("silence", [SILENT_SECONDS - 1, SILENT_SECONDS + 5])


def nominate_for_preemption(silence: float) -> SchedulerHarness:
    """A pod was refused and nominated to the node of its victim; no pod is asked about for so long, then the victim ends."""
    desk = SchedulerHarness({"a": [15]})
    desk.add_bound_pod("victim", "a", 10, leaving=True)
    desk.ledger.update_pod(replace(NOMINEE, nominated_node="", resource_version="5"))
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": "5"}) == []
    desk.ledger.update_pod(replace(NOMINEE, scheduler_name="vrampack", failed_attempt="no card"))
    desk.seconds += silence
    desk.ledger.remove_pod("victim")
    return desk


@QUIET
def test_a_nominee_by_preemption_keeps_no_card_from_a_more_important_pod(silence: float) -> None:
    desk = nominate_for_preemption(silence)
    assert desk.filter_names("urgent", 10, spec={"priority": 100}) == ["a"]


@QUIET
async def test_a_nominee_by_preemption_is_activated_after_a_silence(silence: float) -> None:
    desk = nominate_for_preemption(silence)
    desk.filter_names("tiny", 16)
    assert [each.pod.uid for each in await desk.parts.activator.choose_activations()] == ["late"]


def test_for_the_pod_that_filter_is_called_for_no_nomination_is_held() -> None:
    """Else news of its attempt would be taken for news of an earlier one."""
    desk = SchedulerHarness({"a": [15]})
    desk.filter_names("warm", 1)
    desk.seconds += SILENT_SECONDS
    desk.ledger.update_pod(replace(NOMINEE, resource_version="5"))
    body = json.loads(desk.encode_call("late", 10, (), CLAIM, {"resourceVersion": "5"}))
    body["Pod"]["status"] = {"nominatedNodeName": "a"}
    desk.parts.verbs.filter(json.dumps(body).encode())
    assert list_held(desk) == {"late": ("a", [0])}
    desk.ledger.update_pod(replace(NOMINEE, nominated_node="", failed_attempt="volume"))
    assert list_held(desk) == {}


def test_a_nomination_that_comes_after_a_hold_has_expired_is_held() -> None:
    """It is of another attempt."""
    desk = SchedulerHarness({"a": [15]}, holds=HoldSettings(max_seconds=60))
    hold(desk)
    desk.seconds += 60
    desk.parts.places.end_old_holds()
    desk.seconds += 1
    desk.ledger.update_pod(NOMINEE)
    desk.seconds += SILENT_SECONDS
    desk.filter_names("other", 10)
    assert list_held(desk) == {"late": ("a", [0])}


def test_a_silence_does_not_prolong_a_hold() -> None:
    desk = SchedulerHarness({"a": [15]}, holds=HoldSettings(max_seconds=60))
    desk.ledger.update_pod(replace(hold(desk), nominated_node="a", may_bind_late=True, resource_version="6"))
    for seconds, is_held in ((59, True), (60, False), (90, False)):
        desk.seconds = 1000.0 + seconds
        desk.parts.places.end_old_holds()
        desk.filter_names("other", 10)
        assert bool(list_held(desk)) == is_held


def retry(desk: SchedulerHarness, version: str) -> None:
    """The scheduler tries the pod again, which it has in this version."""
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": version}) == ["a"]


def test_news_of_an_earlier_attempt_ends_no_hold() -> None:
    """The scheduler puts a pod back into its queue before it writes how the attempt failed; the news of the next one counts."""
    desk = SchedulerHarness({"a": [15]})
    pod = replace(hold(desk), nominated_node="a", resource_version="6")
    desk.ledger.update_pod(pod)
    retry(desk, "5")
    desk.ledger.update_pod(replace(pod, nominated_node="", failed_attempt="first", resource_version="7"))
    desk.ledger.update_pod(replace(pod, failed_attempt="first", resource_version="8"))
    assert (list_held(desk), list_ends(desk)) == ({"late": ("a", [0])}, ["filtered"])
    desk.ledger.update_pod(replace(pod, nominated_node="", failed_attempt="second", resource_version="9"))
    assert list_ends(desk) == ["filtered", "failed"]


def test_news_of_a_refused_attempt_ends_no_hold() -> None:
    desk = SchedulerHarness({"a": [15]})
    pod = replace(ledger_pod("late", units=10), resource_version="5")
    desk.ledger.update_pod(pod)
    desk.add_bound_pod("in the way", "a", 15)
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": "5"}) == []
    desk.ledger.remove_pod("in the way")
    desk.seconds += 1
    retry(desk, "5")
    desk.ledger.update_pod(replace(pod, failed_attempt="no room", resource_version="6"))
    assert list_held(desk) == {"late": ("a", [0])}


def test_what_our_watch_knows_already_is_no_news() -> None:
    desk = SchedulerHarness({"a": [15]})
    pod = replace(ledger_pod("late", units=10), failed_attempt="earlier", resource_version="6")
    desk.ledger.update_pod(pod)
    retry(desk, "5")
    desk.ledger.update_pod(replace(pod, resource_version="7"))
    assert list_held(desk) == {"late": ("a", [0])}


def test_the_end_of_a_nomination_to_another_node_ends_no_hold() -> None:
    desk = SchedulerHarness({"a": [15], "b": [15]})
    pod = replace(ledger_pod("late", units=10), nominated_node="b", resource_version="5")
    desk.ledger.update_pod(pod)
    desk.ledger.hold_place(pod, "a", desk.allocation(pod, "a", 0), 0.0)
    assert desk.filter_names("other", 15) == ["b"]  # one place is enough for it
    desk.ledger.update_pod(replace(pod, nominated_node="", resource_version="6"))
    assert list_held(desk) == {"late": ("a", [0])}
    desk.ledger.release_held_places("late", "failed")
    desk.ledger.update_pod(replace(pod, resource_version="7"))
    assert desk.filter_names("other", 15) == ["a"]


def test_cards_are_kept_for_a_nominee_again_when_its_hold_elsewhere_ends() -> None:
    desk = SchedulerHarness({"a": [15], "b": [15]})
    pod = replace(ledger_pod("late", units=10), nominated_node="b", resource_version="5")
    desk.ledger.update_pod(pod)
    desk.ledger.hold_place(pod, "a", desk.allocation(pod, "a", 0), 0.0)
    assert desk.filter_names("other", 15) == ["b"]
    desk.ledger.release_held_places("late", "failed")
    assert desk.filter_names("other", 15) == ["a"]


def test_a_nomination_in_an_older_state_confirms_nothing() -> None:
    desk = SchedulerHarness({"a": [15]})
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": "8"}) == ["a"]
    for version, node in (("7", "a"), ("8", ""), ("9", "")):
        desk.ledger.update_pod(replace(ledger_pod("late", units=10), nominated_node=node, resource_version=version))
    assert list_held(desk) == {"late": ("a", [0])}


@pytest.mark.parametrize("state", [{"node_name": "a"}, {"is_terminating": True}])
def test_nothing_is_held_for_a_pod_that_our_watch_shows_bound_or_leaving(state: dict[str, Any]) -> None:
    desk = SchedulerHarness({"a": [15, 15]})
    pod = replace(ledger_pod("late", units=10), resource_version="5")
    allocation = desk.allocation(pod, "a", 0)
    desk.ledger.update_pod(replace(pod, resource_version="6", **state))
    desk.ledger.hold_place(pod, "a", allocation, 0.0)
    assert list_held(desk) == {}


async def test_a_bind_that_ends_late_leaves_the_hold_of_the_next_attempt() -> None:
    desk = SchedulerHarness({"a": [15]})
    hold(desk)
    desk.parts.places.end_attempt("late", began_at=desk.seconds - 1)
    assert list_held(desk) == {"late": ("a", [0])}
    desk.parts.places.end_attempt("late", began_at=desk.seconds)
    assert list_ends(desk) == ["failed"]


def test_no_place_is_held_for_a_pod_that_is_gone() -> None:
    """The scheduler had begun with it."""
    desk = SchedulerHarness({"a": [15]})
    hold(desk)
    desk.ledger.remove_pod("late")
    assert desk.filter_names("late", 10, spec=CLAIM, metadata={"resourceVersion": "5"}) == ["a"]
    assert list_held(desk) == {}
