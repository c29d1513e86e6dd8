"""Our admission policies, their bindings and the webhook, as the API server has them, without what a bundle must not contain."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from vrampack.simulator.replay.kept_fields import KeptFields
from vrampack.simulator.resource_kinds import Object

OWN_NAME_PREFIX = "vrampack"
POLICY_FIELDS = (
    *("failurePolicy", "reinvocationPolicy", "paramKind", "matchConstraints", "matchConditions", "variables"),
    *("validations", "mutations", "auditAnnotations", "policyName", "paramRef", "validationActions", "matchResources"),
)
"""The kept fields of the spec: expressions and what they apply to."""
WEBHOOK_FIELDS = (
    *("name", "failurePolicy", "matchPolicy", "rules", "matchConditions", "namespaceSelector", "objectSelector"),
    *("sideEffects", "timeoutSeconds", "reinvocationPolicy", "admissionReviewVersions"),
)


class AdmissionKind(msgspec.Struct, frozen=True):
    """Where to list one kind; its group has had several versions."""

    plural: str
    versions: tuple[str, ...] = ("v1",)


ADMISSION_KINDS = (
    AdmissionKind("mutatingadmissionpolicies", ("v1", "v1beta1")),
    AdmissionKind("mutatingadmissionpolicybindings", ("v1", "v1beta1")),
    AdmissionKind("validatingadmissionpolicies"),
    AdmissionKind("validatingadmissionpolicybindings"),
    AdmissionKind("mutatingwebhookconfigurations"),
)


class AdmissionObject(KeptFields, frozen=True):
    """One of them."""

    resource: str
    name: str
    generation: int | None = None
    spec: dict[str, Any] | None = None  # Any: JSON
    webhooks: list[dict[str, Any]] | None = None  # Any: JSON


def keep_admission_objects(items: Iterable[Object], resource: str) -> list[AdmissionObject]:
    """The kept parts of those objects that are ours."""
    return [own for item in items if (own := _keep_admission_object(item, resource)) is not None]


def _keep_admission_object(item: Object, resource: str) -> AdmissionObject | None:
    """The kept parts of an object; None if it is not ours."""
    metadata = item.get("metadata") or {}
    name = str(metadata.get("name", ""))
    if not name.startswith(OWN_NAME_PREFIX):
        return None
    spec, webhooks = item.get("spec"), item.get("webhooks")
    return AdmissionObject(
        resource,
        name,
        metadata.get("generation"),
        None if spec is None else {key: value for key, value in spec.items() if key in POLICY_FIELDS},
        None if webhooks is None else [_keep_webhook(each) for each in webhooks],
    )


def _keep_webhook(webhook: Object) -> Object:
    client = webhook.get("clientConfig") or {}
    service = client.get("service") or {}
    return {
        **{key: value for key, value in webhook.items() if key in WEBHOOK_FIELDS},
        "service": {key: service[key] for key in ("namespace", "name", "path", "port") if key in service},
        "caBundleSha256": _digest_bundle(client.get("caBundle")),
    }


def _digest_bundle(encoded: object) -> str:
    """A digest of the trusted authorities, to compare with the Secret; empty for none."""
    if not isinstance(encoded, str) or not encoded:
        return ""
    try:
        return hashlib.sha256(base64.b64decode(encoded, validate=True)).hexdigest()
    except binascii.Error:
        return "not base64"
