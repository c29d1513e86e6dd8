"""The request formula of the audit, against sums done by hand."""

import pytest

from tests.auditor.asks import read_request
from tests.auditor.builders import Object, a_pod
from tests.auditor.raw import quantity
from tests.auditor.terms import Terms

HELD = {
    # 3 + 2
    "containers add up": (a_pod("p", {"a": 3, "b": 2}), 5),
    # the larger of 3 and 8
    "a larger init container wins": (a_pod("p", {"a": 3}, init={"i": 8}), 8),
    # the larger of 3 and 2: init containers run one after another
    "smaller init containers are free": (a_pod("p", {"a": 3}, init={"i": 2, "j": 1}), 3),
    # 3 + 2
    "a sidecar adds for life": (a_pod("p", {"a": 3}, sidecars={"s": 2}), 5),
    # the larger of 3 + 2 and 4 + 2
    "an init container runs beside earlier sidecars": (a_pod("p", {"a": 3}, init={"i": 4}, sidecars={"s": 2}), 6),
    # the larger of 0 and 4
    "an init container alone": (a_pod("p", {"a": 0}, init={"i": 4}), 4),
    "nothing": (a_pod("p", {"a": 0}), 0),
}


@pytest.mark.parametrize(("pod", "units"), HELD.values(), ids=HELD)
def test_units_held_for_the_life_of_a_pod(pod: Object, units: int) -> None:
    ask = read_request(pod, Terms())
    assert (ask.units, ask.faults) == (units, ())


def test_a_sidecar_after_an_init_container_does_not_run_beside_it() -> None:
    pod = a_pod("p", {"a": 1}, init={"i": 4}, sidecars={"s": 2})
    pod["spec"]["initContainers"].reverse()
    # the larger of 1 + 2 and 4
    assert read_request(pod, Terms()).units == 4


@pytest.mark.parametrize("label", ["0", "-1", "two", "", "1.5"])
def test_an_invalid_number_of_cards_is_a_fault(label: str) -> None:
    pod = a_pod("p")
    pod["metadata"]["labels"]["aliyun.com/gpu-count"] = label
    assert read_request(pod, Terms()).faults


@pytest.mark.parametrize("amount", ["1500m", "-4", "four", "10G"])
def test_an_invalid_amount_is_a_fault(amount: str) -> None:
    pod = a_pod("p")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": amount}}
    assert read_request(pod, Terms()).faults


QUANTITIES = {"4": 4, "1k": 1000, "1Ki": 1024, "2e3": 2000, "4000m": 4, "0.5k": 500, "5E": 5 * 10**18, 7: 7, None: 0}


@pytest.mark.parametrize(("written", "units"), QUANTITIES.items(), ids=map(str, QUANTITIES))
def test_quantities_are_read_as_the_api_server_writes_them(written: object, units: int) -> None:
    assert quantity(written) == units
