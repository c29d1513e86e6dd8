"""The admission webhook's route: what the API server sends, what strangers send, and what comes back."""

from __future__ import annotations

import base64
import json
import select
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

import pytest

from extender.http.admission_routes import MAX_BODY_BYTES, MAX_LARGE_BODIES_BYTES, build_admission_app
from extender.http.admission_webhook import (
    MAX_CONTAINERS,
    MAX_JSON_VALUES,
    MAX_PATCH_BYTES,
    AdmissionReviewer,
    ReviewResponse,
    review_admission,
)
from extender.metrics import AdmissionMetrics
from tests.support.admission.pods import (
    MIRROR,
    VOID,
    admission_container,
    admission_pod,
    env_entry,
    expected_environment,
)
from tests.support.verb_listener import (
    Address,
    build_request,
    open_connection,
    read_reply,
    read_whole_reply,
    run_listener,
)
from vrampack.cards.env_injection import InjectionNames

WIRING = InjectionNames()
SECOND = InjectionNames(scheduler_name="vrampack")
"""Where a second scheduler is ours."""


def a_review(pod: Any, **fields: Any) -> bytes:  # noqa: ANN401 - any JSON value
    asked = {"uid": "u-1", "operation": "CREATE", "object": pod, "oldObject": None, **fields}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def response(answer: ReviewResponse) -> Any:  # noqa: ANN401 - any JSON value
    assert answer.status == HTTPStatus.OK
    whole = json.loads(answer.body)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert whole["response"]["uid"] == "u-1"
    return whole["response"]


def patch(answer: ReviewResponse) -> Any:  # noqa: ANN401 - any JSON value
    made = response(answer)
    assert (made["allowed"], made["patchType"], answer.result) == (True, "JSONPatch", "changed")
    return json.loads(base64.b64decode(made["patch"]))


def refusal(answer: ReviewResponse) -> str:
    made = response(answer)
    assert (made["allowed"], answer.result) == (False, "refused")
    assert made["status"]["code"] == HTTPStatus.UNPROCESSABLE_ENTITY
    return str(made["status"]["message"])


@pytest.fixture
def metrics() -> AdmissionMetrics:
    return AdmissionMetrics("test")


@pytest.fixture
def address(metrics: AdmissionMetrics) -> Iterator[Address]:
    with run_listener(build_admission_app(AdmissionReviewer(WIRING, metrics)), receive_seconds=5) as at:
        yield at


def counted(metrics: AdmissionMetrics, result: str) -> float | None:
    name = "vrampack_admission_request_duration_seconds_count"
    return metrics.registry.get_sample_value(name, {"result": result})


def test_a_pod_that_requests_gpu_memory_is_patched() -> None:
    (only,) = patch(review_admission(a_review(admission_pod()), WIRING))
    assert (only["op"], only["path"]) == ("add", "/spec/containers/0/env")
    assert sorted(only["value"], key=repr) == sorted(expected_environment("main", 4), key=repr)


@pytest.mark.parametrize(
    ("given", "want"), [("", "vrampack"), ("default-scheduler", "vrampack"), ("vrampack", None), ("another", None)]
)
def test_a_pod_that_chose_no_scheduler_gets_ours_if_configured(given: str, want: str | None) -> None:
    pod = a_review(admission_pod(schedulerName=given))
    named = [step["value"] for step in patch(review_admission(pod, SECOND)) if step["path"] == "/spec/schedulerName"]
    assert named == ([want] if want else [])
    assert all(step["path"] != "/spec/schedulerName" for step in patch(review_admission(pod, WIRING)))


@pytest.mark.parametrize(
    "pod",
    [
        admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES")])),
        admission_pod(admission_container(units=0)),
        admission_pod(admission_container(units="-1")),
    ],
)
def test_a_pod_that_asks_for_nothing_is_not_touched(pod: Any) -> None:  # noqa: ANN401 - any JSON value
    answer = review_admission(a_review(pod), SECOND)
    assert answer.result == "unchanged"
    assert response(answer) == {"uid": "u-1", "allowed": True}


def test_only_a_node_may_declare_a_mirror_pod() -> None:
    mirror = admission_pod(annotations={MIRROR: "hash"})
    assert patch(review_admission(a_review(mirror, userInfo={"groups": ["system:authenticated"]}), WIRING))
    assert review_admission(a_review(mirror, userInfo={"groups": ["system:nodes"]}), WIRING).result == "unchanged"
    assert (
        review_admission(a_review(admission_pod(), userInfo={"groups": ["system:nodes"]}), WIRING).result == "changed"
    )


def test_only_new_ephemeral_containers_get_void_as_visible_devices() -> None:
    named = admission_container("named", env=[env_entry("NVIDIA_VISIBLE_DEVICES")])
    new = admission_container("new", env=[env_entry("A", "b")])
    pod, before = admission_pod(), admission_pod()
    before["spec"]["ephemeralContainers"] = [admission_container("old")]
    pod["spec"]["ephemeralContainers"] = [admission_container("old"), named, new]
    asked = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "oldObject": before}
    (only,) = patch(review_admission(a_review(pod, **asked), SECOND))
    assert only == {"op": "add", "path": "/spec/ephemeralContainers/2/env", "value": [*VOID, env_entry("A", "b")]}
    plain = admission_pod(admission_container())
    plain["spec"]["ephemeralContainers"] = [admission_container("new")]
    assert review_admission(a_review(plain, **asked), SECOND).result == "unchanged"


@pytest.mark.parametrize(("operation", "sub_resource"), [("UPDATE", ""), ("CREATE", "binding"), ("DELETE", "")])
def test_unrelated_operations_are_admitted_unchanged(operation: str, sub_resource: str) -> None:
    asked = {"operation": operation, "subResource": sub_resource}
    assert review_admission(a_review(admission_pod(), **asked), WIRING).result == "unchanged"


def test_an_invalid_quantity_is_refused_with_its_text() -> None:
    answer = review_admission(a_review(admission_pod(admission_container(units="four"))), WIRING)
    made = response(answer)
    assert (made["allowed"], answer.result) == (False, "refused")
    assert made["status"] == {"code": 422, "message": "aliyun.com/gpu-mem: 'four' is not a quantity"}


def test_a_pod_of_too_many_containers_is_refused_with_field_and_fix() -> None:
    """The answer to 115,000 of them was 126 MB."""
    fitting = [admission_container("asks", units=1), *(admission_container(f"c{at}") for at in range(MAX_CONTAINERS))]
    pod = admission_pod(*fitting[:-1])
    assert review_admission(a_review(pod), WIRING).result == "changed"
    pod["spec"]["containers"], pod["spec"]["initContainers"] = fitting[:1], fitting[1:]
    text = "spec.containers and spec.initContainers: 501 containers, 500 at most; split the pod into several"
    assert refusal(review_admission(a_review(pod), WIRING)) == f"aliyun.com/gpu-mem: {text}"
    pod["spec"]["containers"] = [admission_container("plain")]
    assert review_admission(a_review(pod), WIRING).result == "unchanged", "it asks for nothing"


def test_too_many_ephemeral_containers_are_refused() -> None:
    pod = admission_pod()
    pod["spec"]["ephemeralContainers"] = [admission_container(f"c{at}") for at in range(MAX_CONTAINERS + 1)]
    asked = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    message = refusal(review_admission(a_review(pod, **asked), WIRING))
    assert "spec.ephemeralContainers: 501 containers, 500 at most" in message


def test_a_patch_too_large_for_the_api_server_is_refused() -> None:
    long = env_entry("A", "b" * MAX_PATCH_BYTES)
    message = refusal(review_admission(a_review(admission_pod(admission_container(units=1, env=[long]))), WIRING))
    assert "spec.containers[*].env has " in message
    assert "keep large values in a ConfigMap" in message


@pytest.mark.parametrize("item", [b"{}", b"[]", b'""', b'{"name":"x"}'])
def test_a_body_of_countless_values_is_refused_before_they_are_decoded(item: bytes) -> None:
    containers = b",".join([b'{"env":[%b],"name":"a"}' % b",".join([item] * MAX_JSON_VALUES)])
    body = a_review(admission_pod()).replace(b'"containers": [', b'"containers": [' + containers + b",")
    message = refusal(review_admission(body, WIRING))
    assert message.startswith("aliyun.com/gpu-mem: the pod has more than 400000 fields and list items")


def test_an_existing_env_entry_is_kept_byte_for_byte() -> None:
    """Even fields that no version of ours knows: only the name of an entry is read."""
    entries = [{"name": "A", "valueFrom": {"later": [1, None, {"x": 1.5}]}}, {"name": "B"}]
    (only,) = patch(review_admission(a_review(admission_pod(admission_container(units=1, env=entries))), WIRING))
    assert only["value"][-2:] == entries


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "truncated"),
        (b"{}", "required field"),
        (b"\xff\xfe", "not an AdmissionReview of a pod (admission.k8s.io/v1)"),
        (b"[" * 100_000, "not an AdmissionReview"),
        (a_review(admission_pod()).replace(b"k8s.io/v1", b"k8s.io/v1beta1"), "apiVersion"),
        (a_review(admission_pod()).replace(b"AdmissionReview", b"ConversionReview"), "kind"),
        (a_review(None), "$.request.object"),
        (a_review({"spec": {"containers": [{"name": 7}]}}), "Expected `str`, got `int`"),
        (a_review({"spec": {"containers": [{"name": "a", "env": "b"}]}}), "Expected `array`, got `str`"),
    ],
)
def test_a_body_that_is_no_review_is_answered_400_with_the_reason(
    address: Address, metrics: AdmissionMetrics, body: bytes, text: str
) -> None:
    with open_connection(address) as client:
        client.sendall(build_request("/mutate", body))
        status, answer = read_reply(client)
    assert (status, counted(metrics, "malformed")) == (400, 1)
    assert text in json.loads(answer)["error"]


def test_a_body_announced_too_large_is_answered_413(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall(b"POST /mutate HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        assert read_reply(client)[0] == 413


def test_large_bodies_that_arrive_together_are_bounded_and_usual_ones_are_read(address: Address) -> None:
    """A body that never ends is held until its deadline: a crowd of them may not fill the memory, nor stop admission."""
    head = b"POST /mutate HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % MAX_BODY_BYTES
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(open_connection(address)) for _ in range(MAX_LARGE_BODIES_BYTES // MAX_BODY_BYTES + 2)
        ]
        for client in crowd:
            client.sendall(head + b" " * (MAX_BODY_BYTES - 1))
        refused = select.select(crowd, [], [], 5)[0]
        assert [read_whole_reply(client)[:12] for client in refused[:1]] == [b"HTTP/1.1 503"]
        with open_connection(address) as client:
            client.sendall(build_request("/mutate", a_review(admission_pod())))
            assert read_reply(client)[0] == 200


def test_other_paths_and_methods_are_answered_404_or_405(address: Address) -> None:
    for head, want in ((b"GET /mutate", 405), (b"POST /", 404), (b"GET /metrics", 404), (b"GET /docs", 404)):
        with open_connection(address) as client:
            client.sendall(head + b" HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            assert read_reply(client)[0] == want


def test_calls_are_counted_by_result(address: Address, metrics: AdmissionMetrics) -> None:
    pods = {
        "changed": admission_pod(),
        "unchanged": admission_pod(admission_container()),
        "refused": admission_pod(admission_container(units="four")),
    }
    for result, pod in pods.items():
        with open_connection(address) as client:
            client.sendall(build_request("/mutate", a_review(pod)))
            assert read_reply(client)[0] == 200
        assert counted(metrics, result) == 1
