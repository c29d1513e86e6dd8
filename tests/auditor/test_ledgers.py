"""The recount finds nothing where ledger and API agree, and every difference where they do not."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.auditor.builders import a_node, a_pod, bound
from tests.auditor.ledgers import stale_places, wrong_ledger

Object = dict[str, Any]  # Any: raw objects, as in the builders
NODE = a_node()


def pods() -> list[Object]:
    """4 units on card 0, 3 on card 1, one pod unbound."""
    first, second = bound(a_pod("a"), NODE), bound(a_pod("b", {"main": 3}), NODE, (1,))
    return [first, second, a_pod("waits")]


def a_holder(name: str, units: int, state: str = "bound") -> Object:
    return {"name": name, "uid": f"uid-{name}", "usedGPU": units, "state": state}


def a_device(index: int, *holders: Object, units: int = 15) -> Object:
    used = sum(holder["usedGPU"] for holder in holders)
    return {"id": index, "totalGPU": units, "usedGPU": used, "pods": list(holders)}


def shown(*devices: Object, name: str = "n1") -> Object:
    return {"nodes": [{"name": name, "devs": list(devices)}]}


A, B = a_holder("a", 4), a_holder("b", 3)


def test_a_matching_ledger_has_no_violation() -> None:
    assert wrong_ledger(shown(a_device(0, A), a_device(1, B)), pods(), [NODE]) == []


def test_a_terminating_pod_is_still_held() -> None:
    assert wrong_ledger(shown(a_device(0, a_holder("a", 4, "terminating")), a_device(1, B)), pods(), [NODE]) == []


def test_what_is_held_for_an_unbound_pod_is_no_difference() -> None:
    assert wrong_ledger(shown(a_device(0, A, a_holder("waits", 3, "held")), a_device(1, B)), pods(), [NODE]) == []


DIFFERENCES: dict[str, tuple[Object, str]] = {
    "a pod is missing": (shown(a_device(0), a_device(1, B)), "of uid uid-a the ledger has nothing, the API 4 units"),
    "another number of units": (shown(a_device(0, a_holder("a", 5)), a_device(1, B)), "uses 5 units, the API 4"),
    "a pod too many": (
        shown(a_device(0, A, a_holder("ghost", 1)), a_device(1, B)),
        "of uid uid-ghost the ledger has 1 units, bound, the API 0 units",
    ),
    "on the other card": (shown(a_device(0, A, B), a_device(1)), "of uid uid-b the ledger has nothing"),
    "still reserved": (shown(a_device(0, a_holder("a", 4, "unconfirmed")), a_device(1, B)), "4 units, unconfirmed"),
    "another size of card": (shown(a_device(0, A, units=16), a_device(1, B)), "has 16 units, the API 15"),
    "no such node": (shown(name="n2"), "the ledger has it, the API does not"),
    "nothing at all": ({}, "the ledger has None units, the API 15"),
}


@pytest.mark.parametrize(("ledger", "text"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_reported(ledger: Object, text: str) -> None:
    found = wrong_ledger(ledger, pods(), [NODE])

    assert any(text in violation.text for violation in found), found
    assert {violation.invariant for violation in found} == {"I3"}


SPOILS: dict[str, Callable[[Object], object]] = {
    "finished": lambda pod: pod["status"].update(phase="Succeeded"),
    "unbound": lambda pod: pod["spec"].pop("nodeName"),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_released_pod_that_is_still_in_the_ledger_is_reported(spoil: Callable[[Object], object]) -> None:
    made = pods()
    spoil(made[0])

    found = wrong_ledger(shown(a_device(0, A), a_device(1, B)), made, [NODE])

    assert "of uid uid-a the ledger has 4 units, bound, the API 0 units" in {violation.text for violation in found}


def a_place(name: str, age: object) -> Object:
    return {"uid": f"uid-{name}", "node": "n1", "cards": [0], "ageSeconds": age}


PLACES: dict[str, tuple[Object, str]] = {
    "nothing": ({}, ""),
    "a bind under way": ({"reservations": [a_place("a", 29)]}, ""),
    "a bind without an answer, its pod still waits": ({"reservations": [a_place("waits", 300)]}, ""),
    "reserved though it is bound": ({"reservations": [a_place("a", 31)]}, "I5"),
    "reserved though it is gone": ({"reservations": [a_place("ghost", 31)]}, "I5"),
    "reserved since an unknown time": ({"reservations": [a_place("ghost", None)]}, "I5"),
    "held": ({"holds": [a_place("waits", 1500)]}, ""),
    "held for too long": ({"holds": [a_place("waits", 1506)]}, "I13"),
    "held though it is bound": ({"holds": [a_place("a", 6)]}, "I13"),
    "held though it is gone": ({"holds": [a_place("ghost", 6)]}, "I13"),
    "promised": ({"promises": [a_place("waits", 1.9)]}, ""),
    "promised for too long": ({"promises": [a_place("waits", 2.1)]}, "I11"),
    "promised since an unknown time": ({"promises": [a_place("waits", "new")]}, "I11"),
}


@pytest.mark.parametrize(("answer", "invariant"), PLACES.values(), ids=PLACES)
def test_a_stale_reservation_is_reported(answer: Object, invariant: str) -> None:
    assert "".join(violation.invariant for violation in stale_places(answer, pods())) == invariant
