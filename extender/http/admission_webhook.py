"""The admission webhook: an AdmissionReview in, one out. `vrampack/cards/env_injection.py` decides what changes in a pod.

It is for API servers before 1.36, which do not have MutatingAdmissionPolicy. It answers a call from the call's own content:
it does not read the ledger, so the ledger need not be complete.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import msgspec

from extender.metrics import AdmissionMetrics
from vrampack.cards.env_injection import (
    AdmissionContainer,
    InjectionNames,
    PatchOperation,
    build_ephemeral_patch,
    build_pod_patch,
    has_memory_request,
    is_mirror_pod,
)
from vrampack.kube.decoding import UNDECODABLE

log = logging.getLogger(__name__)

API_VERSION = "admission.k8s.io/v1"
MAX_JSON_VALUES = 400_000
"""The most JSON values in a call: each costs up to 150 bytes once it is decoded. A usual pod has about a hundred, and
256 KiB of annotations, the API's limit, cannot be counted as so many."""
MAX_CONTAINERS = 500
"""The most containers of a pod that is changed. Each gets about 1 KB of environment, and etcd stores 1.5 MiB."""
MAX_PATCH_BYTES = 2 * 1024 * 1024
"""More than any API server could store afterwards."""


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """What is sent back, and how it is counted."""

    body: bytes
    result: Literal["changed", "unchanged", "refused", "malformed", "error"]
    status: int = HTTPStatus.OK


class AdmissionReviewer:
    """Answers the API server's calls and times them; an internal error is an answer too, and refuses the pod."""

    def __init__(self, names: InjectionNames, metrics: AdmissionMetrics) -> None:
        self._names = names
        self._seconds = metrics.request_seconds

    def review_call(self, body: bytes) -> ReviewResponse:
        """The answer to a call with this body."""
        started = time.perf_counter()
        try:
            answer = review_admission(body, self._names)
        except Exception:
            log.exception("admission failed bytes=%d", len(body))
            answer = _build_error_response("internal error of vrampack; its log has the cause", "error")
        self._seconds.labels(answer.result).observe(time.perf_counter() - started)
        return answer


def review_admission(body: bytes, names: InjectionNames) -> ReviewResponse:
    """The answer to one call; 400 with the reason when it is not a review of a pod."""
    try:
        uid = msgspec.json.decode(body, type=_ReviewHead).request.uid
        if _count_values(body) > MAX_JSON_VALUES:
            text = f"the pod has more than {MAX_JSON_VALUES} fields and list items; keep large data in a ConfigMap"
            return _build_refusal(uid, names, text)
        request = msgspec.json.decode(body, type=_Review).request
    except UNDECODABLE as error:
        return _build_error_response(f"not an AdmissionReview of a pod ({API_VERSION}): {error}", "malformed")
    try:
        patch = msgspec.json.encode(_build_patch(request, names))
    except ValueError as error:
        return _build_refusal(uid, names, str(error))
    if patch == b"[]":
        return _build_review_response(uid, "unchanged", {"allowed": True})
    if len(patch) > MAX_PATCH_BYTES:
        text = f"spec.containers[*].env has {len(patch)} bytes with what is added to it, {MAX_PATCH_BYTES} at most"
        return _build_refusal(uid, names, f"{text}; keep large values in a ConfigMap")
    encoded = base64.b64encode(patch).decode()
    return _build_review_response(uid, "changed", {"allowed": True, "patchType": "JSONPatch", "patch": encoded})


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[AdmissionContainer] = []
    init_containers: list[AdmissionContainer] = []
    ephemeral_containers: list[AdmissionContainer] = []
    scheduler_name: str = ""


class _Pod(msgspec.Struct):
    spec: _Spec
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _RequestHead(msgspec.Struct):
    uid: str


class _ReviewHead(msgspec.Struct):
    """The part read from every call, however large: the decoder skips the rest and creates no objects for it."""

    request: _RequestHead


class _User(msgspec.Struct):
    groups: list[str] = []


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str
    object: _Pod
    sub_resource: str = ""
    old_object: _Pod | None = None
    user_info: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


def _build_patch(request: _Request, names: InjectionNames) -> list[PatchOperation]:
    pod = request.object
    if (request.operation, request.sub_resource) == ("CREATE", ""):
        if is_mirror_pod(pod.metadata.annotations, request.user_info.groups):
            return []
        spec = pod.spec
        containers = [*spec.containers, *spec.init_containers]
        if not has_memory_request(containers, names):
            return []
        _check_number("spec.containers and spec.initContainers", containers)
        return build_pod_patch(spec.containers, spec.init_containers, scheduler_name=spec.scheduler_name, names=names)
    if (request.operation, request.sub_resource) == ("UPDATE", "ephemeralcontainers"):
        before = request.old_object.spec.ephemeral_containers if request.old_object is not None else []
        if has_memory_request([*pod.spec.containers, *pod.spec.init_containers], names):
            _check_number("spec.ephemeralContainers", pod.spec.ephemeral_containers)
            return build_ephemeral_patch(pod.spec.ephemeral_containers, before)
    return []


def _count_values(body: bytes) -> int:
    """An upper bound of the values in the body, found in three passes over its bytes."""
    return sum(body.count(mark) for mark in (b",", b"{", b"["))


def _check_number(field: str, containers: Sequence[AdmissionContainer]) -> None:
    if len(containers) > MAX_CONTAINERS:
        raise ValueError(f"{field}: {len(containers)} containers, {MAX_CONTAINERS} at most; split the pod into several")


def _build_refusal(uid: str, names: InjectionNames, text: str) -> ReviewResponse:
    status = {"code": HTTPStatus.UNPROCESSABLE_ENTITY, "message": f"{names.resource}: {text}"}
    return _build_review_response(uid, "refused", {"allowed": False, "status": status})


def _build_review_response(
    uid: str, result: Literal["changed", "unchanged", "refused"], response: dict[str, object]
) -> ReviewResponse:
    answer = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": uid, **response}}
    return ReviewResponse(msgspec.json.encode(answer), result)


def _build_error_response(text: str, result: Literal["malformed", "error"]) -> ReviewResponse:
    """The API server treats any status but 200 as a failed webhook, and refuses the pod."""
    status = HTTPStatus.BAD_REQUEST if result == "malformed" else HTTPStatus.INTERNAL_SERVER_ERROR
    return ReviewResponse(msgspec.json.encode({"error": text}), result, status)
