"""The webhook for older clusters: its parts name one another rightly, may do what is listed, and speak words of 1.30."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from extender.settings import ExtenderConfiguration, load_settings
from tests.support.manifests import MANIFESTS, Json, load_documents, load_rendered, read_kustomization
from vrampack.cards.well_known import MEMORY_RESOURCE
from vrampack.cli.certificates import main as certificates
from vrampack.cli.version import VERSION
from vrampack.config.addresses import parse_address

WEBHOOK = MANIFESTS / "webhook"
SHAPES = ("second-scheduler", "kubeadm")
NAMESPACE = "vrampack-system"
SINCE_1_33 = ("transformList(", "transformMap(", "transformMapEntry(")
"""Comprehensions that know an index. A server takes the expressions of the version before its own."""


def part(kind: str, *, file: str | None = None) -> Json:
    found = [item for path in (WEBHOOK / "common").glob(file or "*.yaml") for item in load_documents(path)]
    (only,) = [item for item in found if item["kind"] == kind]
    return only


def settings(shape: str) -> ExtenderConfiguration:
    return load_settings(WEBHOOK / shape / "extender.yaml")


def expressions(item: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(item, dict):
        yield from (text for key, text in item.items() if key in {"expression", "messageExpression"})
        for value in item.values():
            yield from expressions(value)
    elif isinstance(item, list):
        for value in item:
            yield from expressions(value)


def test_what_refuses_says_it_in_words_of_1_30() -> None:
    refusing = [
        item for shape in SHAPES for item in load_rendered(shape) if item["kind"] == "ValidatingAdmissionPolicy"
    ]
    refusing += load_documents(MANIFESTS / "admission" / "optional" / "visible-devices.yaml")
    said = [text for item in refusing for text in expressions(item)]
    assert len(said) > 50
    assert [text for text in said for word in SINCE_1_33 if word in text] == []


def test_the_webhook_says_when_it_is_asked_in_words_of_1_27() -> None:
    (webhook,) = part("MutatingWebhookConfiguration")["webhooks"]
    said = list(expressions(webhook))
    assert len(said) == 2
    assert [text for text in said for word in (".?", "[?", "quantity(", *SINCE_1_33) if word in text] == []
    assert MEMORY_RESOURCE in said[0]


def test_the_webhook_fails_closed_soon_and_leaves_our_own_pods_alone() -> None:
    (webhook,) = part("MutatingWebhookConfiguration")["webhooks"]
    assert {key: webhook[key] for key in ("failurePolicy", "reinvocationPolicy", "sideEffects", "timeoutSeconds")} == {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 3,
    }
    (only,) = webhook["namespaceSelector"]["matchExpressions"]
    assert only == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE]}
    asked = [(rule["operations"], rule["resources"]) for rule in webhook["rules"]]
    assert asked == [(["CREATE"], ["pods"]), (["UPDATE"], ["pods/ephemeralcontainers"])]


def test_program_configuration_service_and_role_mean_the_same_objects() -> None:
    configuration, service = part("MutatingWebhookConfiguration"), part("Service")
    (webhook,) = configuration["webhooks"]
    (port,) = service["spec"]["ports"]
    called = webhook["clientConfig"]["service"]
    assert (configuration["metadata"]["name"], webhook["name"]) == (
        certificates.WEBHOOK_CONFIGURATION_NAME,
        certificates.WEBHOOK_NAME,
    )
    assert called == {
        "namespace": NAMESPACE,
        "name": certificates.SERVICE_NAME,
        "port": port["port"],
        "path": "/mutate",
    }
    assert service["metadata"] == {"name": certificates.SERVICE_NAME, "namespace": NAMESPACE}
    assert certificates.build_parser().get_default("namespace") == NAMESPACE
    for shape in SHAPES:
        assert parse_address(settings(shape).listen.admission) == ("0.0.0.0", port["targetPort"])


def test_the_account_may_do_the_listed_things_and_nothing_else() -> None:
    assert part("Role")["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [certificates.SECRET_NAME],
            "verbs": ["get", "update"],
        },
    ]
    assert part("ClusterRole")["rules"] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": [certificates.WEBHOOK_CONFIGURATION_NAME],
            "verbs": ["patch"],
        }
    ]
    account = part("ServiceAccount")["metadata"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (who,) = part(kind)["subjects"]
        assert (who["namespace"], who["name"]) == (account["namespace"], account["name"])


def test_job_and_cron_job_run_the_same_closed_pod() -> None:
    once, daily = part("Job")["spec"], part("CronJob")["spec"]
    pod = once["template"]["spec"]
    assert daily["jobTemplate"]["spec"]["template"]["spec"] == pod
    assert once["ttlSecondsAfterFinished"] > 0
    assert pod["serviceAccountName"] == part("ServiceAccount")["metadata"]["name"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["command"] == ["vrampack", "certificates"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_extender_reads_the_certificate_where_it_is_mounted_and_no_other_key(shape: str) -> None:
    patches = read_kustomization(WEBHOOK / shape)["patches"]
    steps = [step for patch in patches for step in yaml.safe_load(patch["patch"])]
    (mount,) = [step["value"] for step in steps if step["path"].endswith("/volumeMounts/-")]
    (volume,) = [step["value"] for step in steps if step["path"].endswith("/volumes/-")]
    secret, files = volume["secret"], settings(shape).admission
    assert (secret["secretName"], mount["readOnly"]) == (certificates.SECRET_NAME, True)
    assert [item["path"] for item in secret["items"]] == ["tls.crt", "tls.key"]
    assert [str(files.cert_file), str(files.key_file)] == [
        f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key")
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_everything_else_is_as_in_the_shape_without_it(shape: str) -> None:
    own, shipped = settings(shape), load_settings(MANIFESTS / shape / "extender.yaml")
    scheduler = "vrampack" if shape == "second-scheduler" else ""
    assert own.admission.scheduler_name == scheduler
    without = own.model_copy(update={"listen": own.listen.model_copy(update={"admission": ""})})
    assert without.model_copy(update={"admission": shipped.admission}) == shipped
    assert read_kustomization(WEBHOOK / shape)["images"] == [{"name": "ghcr.io/vrampack/vrampack", "newTag": VERSION}]
