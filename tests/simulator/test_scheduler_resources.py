"""What a pod asks of a node: the scheduler's sum over containers, and its rounding."""

from __future__ import annotations

from typing import Any

import pytest

from vrampack.simulator.scheduling.filters import run_filters
from vrampack.simulator.scheduling.resources import (
    NodeResources,
    find_shortages,
    parse_amounts,
    requests_any,
    sum_pod_requests,
)

GPU = "example.com/gpu"

QUANTITIES = {
    "cores in thousandths": ({"cpu": "2"}, {"cpu": 2000}),
    "thousandths": ({"cpu": "250m"}, {"cpu": 250}),
    "less than a thousandth is one": ({"cpu": "100u"}, {"cpu": 1}),
    "half a core": ({"cpu": "0.5"}, {"cpu": 500}),
    "binary": ({"memory": "64Gi"}, {"memory": 64 * 2**30}),
    "decimal": ({"memory": "1.5G"}, {"memory": 1_500_000_000}),
    "exponent": ({"memory": "12e6"}, {"memory": 12_000_000}),
    "part of a byte is one": ({"memory": "100m"}, {"memory": 1}),
    "a number": ({"pods": 110}, {"pods": 110}),
    "no quantity counts for nothing": ({"cpu": "much"}, {"cpu": 0}),
    "nothing": (None, {}),
}


@pytest.mark.parametrize(("given", "want"), QUANTITIES.values(), ids=QUANTITIES)
def test_quantities_are_parsed_and_rounded(given: dict[str, object] | None, want: dict[str, int]) -> None:
    assert parse_amounts(given) == want


def main(units: int) -> dict[str, Any]:
    return {"resources": {"requests": {GPU: str(units)}}}


def sidecar(units: int) -> dict[str, Any]:
    return main(units) | {"restartPolicy": "Always"}


SUMS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], int]] = {
    "containers are added": ([main(2), main(3)], [], 5),
    "init containers come one after another": ([main(2)], [main(3), main(5), main(4)], 5),
    "init containers are gone when the others run": ([main(6)], [main(5)], 6),
    "a sidecar stays": ([main(2)], [sidecar(3)], 5),
    # 3 of the sidecar, 4 of the init container after it
    "an init container after a sidecar is beside it": ([main(2)], [sidecar(3), main(4)], 7),
    "an init container before a sidecar is not": ([main(2)], [main(4), sidecar(3)], 5),
    # 3 + 2 + 1 run together in the end
    "sidecars are added": ([main(1)], [sidecar(3), sidecar(2)], 6),
}


@pytest.mark.parametrize(("containers", "inits", "want"), SUMS.values(), ids=SUMS)
def test_requests_are_summed_over_containers(
    containers: list[dict[str, Any]], inits: list[dict[str, Any]], want: int
) -> None:
    assert sum_pod_requests({"spec": {"containers": containers, "initContainers": inits}}) == {GPU: want, "pods": 1}


def test_overhead_is_added_to_the_requests() -> None:
    assert sum_pod_requests({"spec": {"containers": [main(2)], "overhead": {"cpu": "10m"}}}) == {
        GPU: 2,
        "cpu": 10,
        "pods": 1,
    }


FITS = {
    "exactly": ({GPU: 4}, {GPU: 10, "pods": 9}, {GPU: 6, "pods": 8}, []),
    "one too many": ({GPU: 5}, {GPU: 10, "pods": 9}, {GPU: 6}, [f"Insufficient {GPU}"]),
    "not there": ({GPU: 1}, {"pods": 9}, {}, [f"Insufficient {GPU}"]),
    "nothing asked of an overdrawn node": ({GPU: 0}, {GPU: 1, "pods": 9}, {GPU: 6}, []),
    "no room for a pod": ({GPU: 1}, {GPU: 1, "pods": 9}, {"pods": 9}, ["Too many pods"]),
    "all reasons": ({GPU: 1, "cpu": 1}, {}, {}, ["Too many pods", f"Insufficient {GPU}", "Insufficient cpu"]),
}


@pytest.mark.parametrize(("asked", "has", "used", "want"), FITS.values(), ids=FITS)
def test_shortages_are_found(asked: dict[str, int], has: dict[str, int], used: dict[str, int], want: list[str]) -> None:
    assert find_shortages(asked | {"pods": 1}, NodeResources(has, used)) == want


def test_resources_ignored_by_the_scheduler_are_never_short() -> None:
    assert find_shortages({GPU: 4, "pods": 1}, NodeResources({"pods": 1}, {}), ignored={GPU}) == []


INTERESTS = {
    "requests": ({"containers": [{"resources": {"requests": {GPU: "1"}}}]}, True),
    "limits": ({"containers": [{"resources": {"limits": {GPU: "1"}}}]}, True),
    "init container": ({"containers": [{}], "initContainers": [{"resources": {"limits": {GPU: "1"}}}]}, True),
    "zero": ({"containers": [{"resources": {"limits": {GPU: "0"}}}]}, True),
    "something else": ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, False),
    "ephemeral container": ({"ephemeralContainers": [{"resources": {"limits": {GPU: "1"}}}]}, False),
}


@pytest.mark.parametrize(("spec", "want"), INTERESTS.values(), ids=INTERESTS)
def test_the_extender_is_called_for_pods_with_managed_resources(spec: dict[str, Any], want: bool) -> None:  # noqa: FBT001 - a table
    assert requests_any({"spec": spec}, {GPU}) is want


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
TOLERATED = {
    "no toleration": ([], False),
    "equal": ([{"key": "k", "value": "v", "effect": "NoSchedule"}], True),
    "equal is the default operator": ([{"key": "k", "operator": "Equal", "value": "v"}], True),
    "another value": ([{"key": "k", "value": "w"}], False),
    "another key": ([{"key": "l", "operator": "Exists"}], False),
    "another effect": ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], False),
    "exists": ([{"key": "k", "operator": "Exists"}], True),
    "everything": ([{"operator": "Exists"}], True),
    "one of two": ([{"key": "l", "operator": "Exists"}, {"key": "k", "operator": "Exists"}], True),
}


@pytest.mark.parametrize(("tolerations", "want"), TOLERATED.values(), ids=TOLERATED)
def test_taints_require_matching_tolerations(tolerations: list[dict[str, str]], want: bool) -> None:  # noqa: FBT001 - a table
    node = {"metadata": {}, "spec": {"taints": [TAINT]}}
    assert (not run_filters({"spec": {"tolerations": tolerations}}, node)) is want


def test_a_prefer_no_schedule_taint_refuses_no_pod() -> None:
    node = {"metadata": {}, "spec": {"taints": [TAINT | {"effect": "PreferNoSchedule"}]}}
    assert run_filters({"spec": {}}, node) == []
