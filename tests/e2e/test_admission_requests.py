"""Requests that no card can ever meet are refused at once, naming the field and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.control_plane.cluster import ControlPlane, Json

MEMORY, CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"


@pytest.fixture
def bench(cluster: ControlPlane) -> Iterator[AdmissionBench]:
    with open_admission_bench(cluster) as made:
        yield made


REFUSED = {
    "bytes": (
        admission_pod(admission_container(units="10G")),
        f"spec.containers[0].resources.limits[{MEMORY}]: 10G",
        "write 10",
    ),
    "binary bytes": (
        admission_pod(admission_container(units="4Gi")),
        f"spec.containers[0].resources.limits[{MEMORY}]: 4Gi",
        "units",
    ),
    "one too many": (admission_pod(admission_container(units=1048577)), "1048577 is more than 1048576 units", "units"),
    "more than 64 bits": (
        admission_pod(admission_container(units="9E")),
        f"spec.containers[0].resources.limits[{MEMORY}]: 9E",
        "units",
    ),
    "the second container": (
        admission_pod(admission_container(units=1), admission_container("other", units="2G")),
        f"spec.containers[1].resources.limits[{MEMORY}]: 2G",
        "units",
    ),
    "an init container": (
        admission_pod(admission_container(units=1), init=[admission_container("init", units="2G")]),
        f"spec.initContainers[0].resources.limits[{MEMORY}]: 2G",
        "units",
    ),
    "cores": (
        admission_pod({**admission_container(), "resources": {"limits": {MEMORY: "1", CORES: "30"}}}),
        f"spec.containers[0].resources.limits[{CORES}]",
        "remove it",
    ),
    "cores alone": (
        admission_pod({**admission_container(), "resources": {"limits": {CORES: "30"}}}),
        f"spec.containers[0].resources.limits[{CORES}]",
        "remove it",
    ),
    "cores of an init container": (
        admission_pod(init=[{**admission_container("init"), "resources": {"limits": {CORES: "100"}}}]),
        f"spec.initContainers[0].resources.limits[{CORES}]",
        "remove it",
    ),
}


@pytest.mark.parametrize(("pod", "field", "cure"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_field_and_cure(bench: AdmissionBench, pod: Json, field: str, cure: str) -> None:
    status, answer = bench.post_pod(pod)
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert field in answer["message"]
    assert cure in answer["message"]


ACCEPTED = {
    "the largest": admission_pod(admission_container(units=1048576)),
    "none": admission_pod(admission_container(units=0)),
    "no cores": admission_pod({**admission_container(), "resources": {"limits": {CORES: "0"}}}),
    # The extender answers these: never fits, and why. The pod waits with that text.
    "cards that do not divide": admission_pod(admission_container(units=3), labels={"aliyun.com/gpu-count": "2"}),
    "a count that is none": admission_pod(admission_container(units=3), labels={"aliyun.com/gpu-count": "many"}),
}


@pytest.mark.parametrize("pod", ACCEPTED.values(), ids=ACCEPTED)
def test_it_is_accepted(bench: AdmissionBench, pod: Json) -> None:
    status, answer = bench.post_pod(pod)
    assert status == HTTPStatus.CREATED, answer
