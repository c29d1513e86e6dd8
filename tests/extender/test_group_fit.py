"""A group whose pods start together is refused as one where too few of them find cards, and never where they would fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from extender.card_preemption.refused_calls import MAX_CALLS, RefusedCalls
from extender.rule_settings import RuleSettings
from extender.state.group_fit import MAX_BUILT
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod
from vrampack.cards.pod_group import GroupKey, GroupKind
from vrampack.cards.records import Record

GROUP = GroupKey("podgroups.scheduling.k8s.io", "default", "train")
SPEC: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}
REFUSED = "its group does not fit"


def start_desk(*cards: int, minimum: int | None = 3, rules: RuleSettings | None = None) -> SchedulerHarness:
    """One node with these cards."""
    desk = SchedulerHarness({"a": cards}, rules=rules)
    desk.parts.groups.put_minimum(GROUP, minimum)
    return desk


def add_members(desk: SchedulerHarness, *units: int) -> list[str]:
    """Members `m0`, `m1`, .. that ask for so many units."""
    for number, each in enumerate(units):
        desk.ledger.update_pod(replace(ledger_pod(f"m{number}", units=each), group=GROUP))
    return [f"m{number}" for number in range(len(units))]


def bind_member(desk: SchedulerHarness, name: str, units: int, card: int) -> None:
    record = Record("vrampack", desk.allocation(ledger_pod(name, units=units), "a", card).cards)
    desk.ledger.update_pod(replace(ledger_pod(name, units=units, node="a", record=record), group=GROUP))


def refuse(desk: SchedulerHarness, name: str, units: int) -> str:
    """Why node `a` is refused to this member; empty if it is not."""
    return str(desk.post_filter(name, units, spec=SPEC)["FailedNodes"].get("a", ""))


@dataclass(frozen=True)
class Row:
    """Members that ask for so much wait on these cards, of 16 units unless free."""

    cards: tuple[int, ...]
    members: tuple[int, ...]
    is_refused: bool
    minimum: int | None = 3


ROWS = {
    "three cards for three": Row((16, 16, 16), (9, 9, 9), is_refused=False),
    "two cards for three": Row((16, 16, 10), (11, 11, 11), is_refused=True),
    "two on one card": Row((18, 16), (9, 9, 9), is_refused=False),
    "two cards for three of which two must start": Row((16, 16), (9, 9, 9), minimum=2, is_refused=False),
    "one card for three of which two must start": Row((16, 8), (9, 9, 9), minimum=2, is_refused=True),
    "not all of its pods are known": Row((16,), (9, 9), is_refused=False),
    "its pods may start one by one": Row((16,), (9, 9, 9), minimum=None, is_refused=False),
    "the large ones find too few cards": Row((16, 8, 8), (2, 12, 12), is_refused=True),
    "a small one does not count against the large ones": Row((16, 16), (2, 12, 12), is_refused=False),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_it_is_refused_only_where_too_few_find_cards(row: Row) -> None:
    desk = start_desk(*row.cards, minimum=row.minimum)
    add_members(desk, *row.members)
    assert (refuse(desk, "m0", row.members[0]) == REFUSED) is row.is_refused
    assert bool(desk.ledger.places.list_held_places()) is not row.is_refused


def test_members_in_any_state_count_where_they_are() -> None:
    """One is bound, one holds its place, one is refused cards by a stranger until that goes, one is being deleted."""
    desk = start_desk(16, 16, 16)
    add_members(desk, 9, 9, 9)
    bind_member(desk, "m0", 9, 0)
    assert refuse(desk, "m1", 9) == ""
    desk.add_bound_pod("stranger", "a", 9, card=2)
    assert (refuse(desk, "m2", 9), refuse(desk, "m1", 9)) == ("no card with enough free memory", REFUSED)
    desk.ledger.remove_pod("stranger")
    assert (refuse(desk, "m1", 9), refuse(desk, "m2", 9)) == ("", "")
    desk.add_bound_pod("stranger", "a", 7, card=2)
    assert refuse(desk, "m1", 9) == ""  # the places that members hold are theirs to use


@pytest.mark.parametrize("known", [3, 2])
def test_rules_apply_to_all_members_alike(known: int) -> None:
    """Also to one that the scheduler asks about before the watch shows it."""
    desk = start_desk(16, 16, rules=RuleSettings(max_pods_per_card=1))
    add_members(desk, *[4] * known)
    assert refuse(desk, "m2", 4) == REFUSED


def test_a_group_for_which_others_may_be_evicted_is_not_refused() -> None:
    """Told that the free card does not suffice, the scheduler would evict a pod for each member instead of for one."""
    for priority, want in ((0, REFUSED), (10, "")):
        desk = start_desk(16, 16, 16)
        desk.add_bound_pod("other", "a", 16, card=0)
        for number in range(3):
            desk.ledger.update_pod(replace(ledger_pod(f"m{number}", units=9, priority=priority), group=GROUP))
        assert refuse(desk, "m0", 9) == want


@pytest.mark.parametrize(("minimum", "victims"), [(2, {"a": ["low0"]}), (3, {})])
async def test_nobody_is_evicted_for_a_group_that_still_would_not_fit(minimum: int, victims: dict[str, Any]) -> None:
    """All three cards would come free, but no member asks for so little as the third one has."""
    desk = start_desk(16, 16, 8, minimum=minimum)
    for number in range(2):
        desk.add_bound_pod(f"low{number}", "a", 16, card=number)
    for number in range(3):
        desk.ledger.update_pod(replace(ledger_pod(f"m{number}", units=9, priority=10), group=GROUP))
    assert await desk.preempt("m0", 9, {"a": ["low0"]}, priority=10) == victims


def test_pods_of_a_group_do_not_crowd_out_those_that_cards_may_be_cleared_for() -> None:
    desk = start_desk(16)
    calls = RefusedCalls(desk.parts.activator, desk.ledger, clock=desk.clock)
    names = add_members(desk, *[9] * (MAX_CALLS + 1))
    desk.ledger.update_pod(ledger_pod("single", units=9))
    for name in (*names, "single"):
        calls.on_filter_answered(name, ["a"], fits=False)
    assert next(calls.list_waiting())[0].name == "single"


def test_a_member_that_is_already_reserved_is_not_counted_twice() -> None:
    desk = start_desk(16, 16, 16)
    add_members(desk, 9, 9, 9)
    pod = desk.ledger.get_pod("m0")
    assert pod is not None
    desk.ledger.assume(pod, "a", desk.allocation(pod, "a", 0))
    assert (refuse(desk, "m1", 9), refuse(desk, "m2", 9)) == ("", "")


def test_pods_that_ask_for_no_memory_may_be_among_those_that_start() -> None:
    """A launcher and two of three workers."""
    desk = start_desk(16, 16, 8)
    launcher = replace(ledger_pod("launcher"), request=None, group=GROUP)
    for pod, want in ((launcher, ""), (replace(launcher, is_finished=True), REFUSED), (launcher, "")):
        desk.ledger.update_pod(pod)
        names = add_members(desk, 9, 9, 9)
        assert refuse(desk, "m0", 9) == want
    assert refuse(desk, "m1", 9) == ""
    desk.filter_names("other", 4)
    assert list_held(desk) == ["m0", "m1"]  # with the launcher they are enough
    desk.ledger.end_list(desk.ledger.begin_list(), {"launcher", *names})
    assert refuse(desk, "m0", 9) == ""
    desk.ledger.end_list(desk.ledger.begin_list(), set(names))
    assert refuse(desk, "m0", 9) == REFUSED


def test_a_member_may_ask_for_less_later() -> None:
    """Its annotations may be changed while it waits, which changes no node."""
    desk = start_desk(16, 16)
    for units, want in ((9, REFUSED), (4, "")):
        add_members(desk, *[units] * 3)
        assert refuse(desk, "m0", units) == want


@pytest.mark.parametrize(("small", "want"), [(MAX_BUILT, REFUSED), (MAX_BUILT + 1, "")])
def test_a_group_is_tried_where_pods_may_leave_too_many_nodes(small: int, want: str) -> None:
    """Even if they leave too little: one call must not build a thousand nodes."""
    desk = SchedulerHarness({"a": (16, 16)} | {f"n{number}": (8,) for number in range(small)})
    desk.parts.groups.put_minimum(GROUP, 3)
    for number in range(small):
        desk.ledger.update_pod(ledger_pod(f"low{number}", units=1, node=f"n{number}", priority=-1, record=None))
    add_members(desk, 9, 9, 9)
    assert refuse(desk, "m0", 9) == want


def test_a_group_that_is_whole_takes_more_pods_one_by_one() -> None:
    desk = start_desk(16, 16, 8, minimum=2)
    add_members(desk, 9, 9, 9, 4)
    for number in range(2):
        bind_member(desk, f"m{number}", 9, number)
    assert (refuse(desk, "m2", 9), refuse(desk, "m3", 4)) == ("no card with enough free memory", "")


def hold_two_of_three(kind: GroupKind = "podgroups.scheduling.k8s.io") -> SchedulerHarness:
    """A group that fits by cards, on a node with four: the scheduler found places for two of its three pods."""
    desk = SchedulerHarness({"a": (16, 16, 16, 16)})
    group = GROUP._replace(kind=kind)
    desk.parts.groups.put_minimum(group, 3)
    for number in range(3):
        desk.ledger.update_pod(replace(ledger_pod(f"m{number}", units=9, version="1"), group=group))
    is_own = kind == GROUP.kind
    spec, labels = (SPEC, {}) if is_own else ({}, {"scheduling.x-k8s.io/pod-group": "train"})
    for name in ("m0", "m1"):
        desk.filter_names(name, 9, spec=spec, metadata={"labels": labels, "resourceVersion": "1"})
    return desk


def list_held(desk: SchedulerHarness) -> list[str]:
    return sorted(place.pod.name for place in desk.ledger.places.list_held_places())


def test_the_next_pod_shows_that_the_attempt_of_a_group_has_failed() -> None:
    """Its third pod lacks what we do not see, and the scheduler writes that only once."""
    desk = hold_two_of_three()
    assert list_held(desk) == ["m0", "m1"]
    assert desk.filter_names("other", 16) == ["a"]
    assert list_held(desk) == []


def test_a_group_with_enough_places_keeps_them_beside_other_pods() -> None:
    desk = hold_two_of_three()
    desk.filter_names("m2", 9, spec=SPEC)
    desk.filter_names("other", 16)
    assert list_held(desk) == ["m0", "m1", "m2"]


def test_a_failed_bind_frees_only_its_own_place_until_the_next_attempt() -> None:
    """The other pods wait for volumes, and the scheduler does not nominate them meanwhile."""
    desk = hold_two_of_three()
    desk.filter_names("m2", 9, spec=SPEC)
    desk.parts.places.end_attempt("m2", desk.seconds)
    for _ in range(2):
        desk.filter_names("other", 16)
        desk.parts.places.end_old_holds()
        desk.seconds += 6
        assert list_held(desk) == ["m0", "m1"]
    desk.add_bound_pod("stranger", "a", 16, card=2)
    desk.filter_names("m2", 17, spec=SPEC)
    desk.filter_names("other", 16)
    assert list_held(desk) == []


def test_a_nominated_pod_keeps_its_place() -> None:
    desk = hold_two_of_three()
    desk.ledger.update_pod(
        replace(ledger_pod("m0", units=9, version="2"), nominated_node="a", group=GROUP, may_bind_late=True)
    )
    desk.filter_names("other", 16)
    assert list_held(desk) == ["m0"]


def test_pods_of_coscheduling_wait_for_the_others_one_by_one() -> None:
    desk = hold_two_of_three("podgroups.scheduling.x-k8s.io")
    desk.filter_names("other", 16)
    desk.seconds += 60
    for _ in range(2):
        desk.parts.places.end_old_holds()
    assert list_held(desk) == ["m0", "m1"]


def test_a_group_that_fails_for_long_gives_its_places_up_though_no_other_pod_is_tried() -> None:
    desk = hold_two_of_three()
    for seconds, held in ((0, ["m0", "m1"]), (5, ["m0", "m1"]), (0.2, [])):
        desk.seconds += seconds
        desk.filter_names("m0", 9, spec=SPEC, metadata={"resourceVersion": "1"})  # again and again
        desk.parts.places.end_old_holds()
        assert list_held(desk) == held


def test_a_group_that_fails_for_long_keeps_no_card_from_other_schedulers() -> None:
    """Until it finds enough places: a profile of the same scheduler is not told from another scheduler."""
    desk = hold_two_of_three()

    def try_other() -> list[str]:
        desk.filter_names("other", 16, spec={"schedulerName": "second"})
        return list_held(desk)

    desk.parts.places.end_old_holds()
    assert try_other() == ["m0", "m1"]
    desk.seconds += 6
    desk.parts.places.end_old_holds()
    for name in ("m0", "m1"):
        desk.filter_names(name, 9, spec=SPEC)
    assert try_other() == []
    for name in ("m0", "m1", "m2"):
        desk.filter_names(name, 9, spec=SPEC)
    assert try_other() == ["m0", "m1", "m2"]
    desk.filter_names("m2", 17, spec=SPEC)
    assert try_other() == ["m0", "m1"]


def test_a_large_group_keeps_its_places_while_the_scheduler_tries_it() -> None:
    desk = SchedulerHarness({f"n{number}": (16,) * 8 for number in range(25)})
    desk.parts.groups.put_minimum(GROUP, 200)
    names = add_members(desk, *[9] * 200)
    for name in names:
        desk.seconds += 0.04
        desk.parts.places.end_old_holds()
        desk.filter_and_prioritize(name, 9, spec=SPEC)
    assert list_held(desk) == sorted(names)


async def test_the_event_and_the_explanation_have_the_numbers() -> None:
    desk = start_desk(16, 16)
    add_members(desk, 9, 9, 9, 9)
    desk.post_filter("m0", 9, spec=SPEC)
    text = "4 of its pods wait and at least 3 must start together, but there are cards for at most 2"
    assert await desk.tell_refused() == [("GPUMemoryGroupDoesNotFit", text)]
    (pod,) = [each for each in desk.ledger.list_unbound_pods() if each.name == "m0"]
    assert pod.request is not None
    assert desk.parts.explain_view.describe_request(pod, pod.request)["groupObstacle"] == text


async def test_its_pods_are_activated_when_the_group_fits() -> None:
    desk = start_desk(16, 16, 16)
    desk.add_bound_pod("x", "a", 16, card=0)
    desk.add_bound_pod("y", "a", 16, card=1)
    names = add_members(desk, 9, 9, 9)
    for name in names:
        assert refuse(desk, name, 9) == REFUSED
    desk.ledger.remove_pod("x")
    assert await list_activated(desk) == []
    desk.ledger.remove_pod("y")
    assert await list_activated(desk) == names


async def test_its_pods_are_activated_on_cards_that_were_free_all_the_time() -> None:
    desk = SchedulerHarness({"a": (16, 16), "b": (16,)})
    desk.parts.groups.put_minimum(GROUP, 3)
    desk.add_bound_pod("x", "b", 16)
    names = add_members(desk, 9, 9, 9)
    for name in names:
        desk.filter_names(name, 9, spec=SPEC)
    desk.ledger.remove_pod("x")
    assert await list_activated(desk) == names


def lower_the_minimum(desk: SchedulerHarness) -> None:
    desk.parts.groups.put_minimum(GROUP, 2)


def delete_the_group(desk: SchedulerHarness) -> None:
    desk.parts.groups.keep_listed(GROUP.kind, set())


def add_a_small_member(desk: SchedulerHarness) -> None:
    desk.ledger.update_pod(replace(ledger_pod("m3", units=4), group=GROUP))


def add_a_launcher(desk: SchedulerHarness) -> None:
    desk.ledger.update_pod(replace(ledger_pod("launcher"), request=None, group=GROUP))


def ask_for_less(desk: SchedulerHarness) -> None:
    add_members(desk, 9, 9, 4)


CHANGES = (lower_the_minimum, delete_the_group, add_a_small_member, add_a_launcher, ask_for_less)


@pytest.mark.parametrize("change", CHANGES)
async def test_its_pods_are_activated_when_the_group_is_another_one(change: Callable[[SchedulerHarness], None]) -> None:
    """No node gains room by that."""
    desk = start_desk(16, 16, 8)
    for name in add_members(desk, 9, 9, 9):
        assert refuse(desk, name, 9) == REFUSED
    assert await list_activated(desk) == []
    change(desk)
    assert {"m0", "m1"} <= set(await list_activated(desk))


async def list_activated(desk: SchedulerHarness) -> list[str]:
    return [activation.pod.name for activation in await desk.parts.activator.choose_activations()]
