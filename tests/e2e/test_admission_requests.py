"""Requests that no card can ever meet are refused at once, naming the field and the fix."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission import refused_requests
from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.admission.refused_requests import CORES
from tests.support.control_plane.cluster import Json


@pytest.fixture
def bench(tenant: AdmissionBench) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


@pytest.mark.parametrize(("pod", "field", "cure"), refused_requests.REFUSED.values(), ids=refused_requests.REFUSED)
def test_an_invalid_pod_is_refused_with_field_and_fix(bench: AdmissionBench, pod: Json, field: str, cure: str) -> None:
    refused_requests.check_refusal(bench, pod, field, cure)


ACCEPTED = {
    "the largest": admission_pod(admission_container(units=1048576)),
    "none": admission_pod(admission_container(units=0)),
    "as many wishes as may be": admission_pod(
        admission_container(units=1), annotations={"vrampack.dev/card-uuid": ", ".join(["G" * 128] * 64)}
    ),
    "no cores": admission_pod({**admission_container(), "resources": {"limits": {CORES: "0"}}}),
    # The extender answers these: never fits, and why. The pod waits with that text.
    "cards that do not divide": admission_pod(admission_container(units=3), labels={"aliyun.com/gpu-count": "2"}),
    "a count that is none": admission_pod(admission_container(units=3), labels={"aliyun.com/gpu-count": "many"}),
}


@pytest.mark.parametrize("pod", ACCEPTED.values(), ids=ACCEPTED)
def test_a_valid_request_is_accepted(bench: AdmissionBench, pod: Json) -> None:
    status, answer = bench.post_pod(pod)
    assert status == HTTPStatus.CREATED, answer
