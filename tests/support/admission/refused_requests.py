"""Requests that no card can ever meet, and what their refusal names: the field and the cure."""

from __future__ import annotations

from http import HTTPStatus

from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import MEMORY, admission_container, admission_pod
from tests.support.control_plane.cluster import Json

CARD_MODEL, CARD_UUID = "vrampack.dev/card-model", "vrampack.dev/card-uuid"
CORES = "aliyun.com/gpu-core.percentage"

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
    "more cards than can be looked for": (
        admission_pod(admission_container(units=1), annotations={CARD_UUID: ",".join(["GPU-0"] * 65)}),
        f"metadata.annotations[{CARD_UUID}]: more than 64 entries",
        "give fewer",
    ),
    "a quarter of a megabyte of models": (
        admission_pod(admission_container(units=1), annotations={CARD_MODEL: "NVIDIA A100," * 20_000}),
        f"metadata.annotations[{CARD_MODEL}]: more than 64 entries",
        "give fewer",
    ),
    "a name that no card has": (
        admission_pod(admission_container(units=1), annotations={CARD_MODEL: "A100, " + "x" * 129}),
        f"metadata.annotations[{CARD_MODEL}]: a name of more than 128 characters",
        "vrampack inspect",
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


def check_refusal(bench: AdmissionBench, pod: Json, field: str, cure: str) -> None:
    status, answer = bench.post_pod(pod)
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert field in answer["message"]
    assert cure in answer["message"]
