"""The admission webhook: an AdmissionReview in, one out. What is changed in a pod is decided in `vrampack/cards/env_injection.py`.

For API servers before 1.36, which know no MutatingAdmissionPolicy. A call is answered from its own content: the ledger
is not asked, so neither does it have to be complete.
"""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import msgspec

from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from vrampack.cards.env_injection import (
    AdmissionContainer,
    InjectionNames,
    PatchOperation,
    build_ephemeral_patch,
    build_pod_patch,
    has_memory_request,
    is_mirror_pod,
)
from vrampack.kube.objects import UNDECODABLE

log = logging.getLogger(__name__)

API_VERSION = "admission.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """What is sent back, and how it is counted."""

    body: bytes
    result: Literal["changed", "unchanged", "refused", "malformed", "error"]
    status: int = HTTPStatus.OK


class AdmissionReviewer:
    """Answers calls of the API server, timed; a fault of ours is an answer too, and refuses the pod."""

    def __init__(self, settings: ExtenderConfiguration, metrics: ExtenderMetrics) -> None:
        self._names = InjectionNames(settings.resources.memory, settings.admission.scheduler_name)
        self._seconds = metrics.admission_seconds

    def __call__(self, body: bytes) -> ReviewResponse:
        started = time.perf_counter()
        try:
            answer = review_admission(body, self._names)
        except Exception:
            log.exception("admission failed bytes=%d", len(body))
            answer = _build_error_response("internal error of vrampack; its log has the cause", "error")
        self._seconds.labels(answer.result).observe(time.perf_counter() - started)
        return answer


def review_admission(body: bytes, names: InjectionNames) -> ReviewResponse:
    """The answer to one call; 400 with the reason for what is no review of a pod."""
    try:
        request = msgspec.json.decode(body, type=_Review).request
    except UNDECODABLE as error:
        return _build_error_response(f"no AdmissionReview of a pod ({API_VERSION}): {error}", "malformed")
    try:
        patch = _build_patch(request, names)
    except ValueError as error:
        refusal = {"code": HTTPStatus.UNPROCESSABLE_ENTITY, "message": f"{names.resource}: {error}"}
        return _build_review_response(request.uid, "refused", {"allowed": False, "status": refusal})
    if not patch:
        return _build_review_response(request.uid, "unchanged", {"allowed": True})
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _build_review_response(request.uid, "changed", {"allowed": True, "patchType": "JSONPatch", "patch": encoded})


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
        return build_pod_patch(spec.containers, spec.init_containers, scheduler_name=spec.scheduler_name, names=names)
    if (request.operation, request.sub_resource) == ("UPDATE", "ephemeralcontainers"):
        before = request.old_object.spec.ephemeral_containers if request.old_object is not None else []
        if has_memory_request([*pod.spec.containers, *pod.spec.init_containers], names):
            return build_ephemeral_patch(pod.spec.ephemeral_containers, before)
    return []


def _build_review_response(
    uid: str, result: Literal["changed", "unchanged", "refused"], response: dict[str, object]
) -> ReviewResponse:
    answer = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": uid, **response}}
    return ReviewResponse(msgspec.json.encode(answer), result)


def _build_error_response(text: str, result: Literal["malformed", "error"]) -> ReviewResponse:
    """The API server takes any status but 200 for a webhook that failed, and refuses the pod."""
    status = HTTPStatus.BAD_REQUEST if result == "malformed" else HTTPStatus.INTERNAL_SERVER_ERROR
    return ReviewResponse(msgspec.json.encode({"error": text}), result, status)
