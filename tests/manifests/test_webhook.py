"""The webhook for older clusters: its parts refer to each other correctly, have only the listed rights, and suit 1.30."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from extender.admission_settings import AdmissionWebhookConfiguration, load_admission_settings
from extender.settings import load_settings
from tests.support.manifests import MANIFESTS, Json, load_documents, load_rendered, read_kustomization
from vrampack.cards.well_known import MEMORY_RESOURCE
from vrampack.cli.certificates import main as certificates
from vrampack.cli.version import VERSION
from vrampack.config.addresses import parse_address

WEBHOOK = MANIFESTS / "webhook"
SHAPES = ("second-scheduler", "kubeadm")
NAMESPACE = "vrampack-system"
EVERYBODY = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
"""Until the addresses of the API servers are filled in."""
SINCE_1_33 = ("transformList(", "transformMap(", "transformMapEntry(")
"""Comprehensions with an index. A server accepts the expressions of the version before its own."""


def part(kind: str, name: str = "") -> Json:
    """The object of that kind in the component; where there are several, the one of that name."""
    found = [item for path in (WEBHOOK / "common").glob("*.yaml") for item in load_documents(path)]
    (only,) = [item for item in found if item["kind"] == kind and name in ("", item["metadata"]["name"])]
    return only


def settings(shape: str) -> AdmissionWebhookConfiguration:
    return load_admission_settings(WEBHOOK / shape / "admission.yaml")


def webhook_pod() -> Json:
    return part("Deployment")["spec"]["template"]["spec"]


def expressions(item: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(item, dict):
        yield from (text for key, text in item.items() if key in {"expression", "messageExpression"})
        for value in item.values():
            yield from expressions(value)
    elif isinstance(item, list):
        for value in item:
            yield from expressions(value)


def test_validating_policies_use_only_features_of_1_30() -> None:
    refusing = [
        item for shape in SHAPES for item in load_rendered(shape) if item["kind"] == "ValidatingAdmissionPolicy"
    ]
    refusing += load_documents(MANIFESTS / "admission" / "exact" / "environment-guard.yaml")
    refusing += load_documents(MANIFESTS / "admission" / "optional" / "visible-devices.yaml")
    said = [text for item in refusing for text in expressions(item)]
    assert len(said) > 50
    assert [text for text in said for word in SINCE_1_33 if word in text] == []


def test_the_webhooks_match_conditions_use_only_features_of_1_27() -> None:
    (webhook,) = part("MutatingWebhookConfiguration")["webhooks"]
    said = list(expressions(webhook))
    assert len(said) == 2
    assert [text for text in said for word in (".?", "[?", "quantity(", *SINCE_1_33) if word in text] == []
    assert MEMORY_RESOURCE in said[0]


def test_the_webhook_fails_closed_after_3_s_and_skips_our_own_namespace() -> None:
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


def test_program_webhook_configuration_and_service_agree() -> None:
    configuration = part("MutatingWebhookConfiguration")
    service = part("Service", certificates.SERVICE_NAME)
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
    assert service["metadata"]["namespace"] == NAMESPACE
    assert certificates.build_parser().get_default("namespace") == NAMESPACE
    (container,) = webhook_pod()["containers"]
    named = {made["name"]: made["containerPort"] for made in container["ports"]}
    for shape in SHAPES:
        assert parse_address(settings(shape).listen.admission) == ("0.0.0.0", named[port["targetPort"]])
        assert parse_address(settings(shape).listen.health) == ("0.0.0.0", named["health"])


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
    account = part("ServiceAccount", "vrampack-certificates")["metadata"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (who,) = part(kind)["subjects"]
        assert (who["namespace"], who["name"]) == (account["namespace"], account["name"])


def test_job_and_cron_job_run_the_same_locked_down_pod() -> None:
    once, daily = part("Job")["spec"], part("CronJob")["spec"]
    pod = once["template"]["spec"]
    assert daily["jobTemplate"]["spec"]["template"]["spec"] == pod
    assert once["ttlSecondsAfterFinished"] > 0
    assert pod["serviceAccountName"] == part("ServiceAccount", "vrampack-certificates")["metadata"]["name"]
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


def test_the_webhook_pod_is_locked_down_and_its_account_has_no_rights() -> None:
    """Anybody may send it anything, so an attacker may get whatever it has."""
    pod = webhook_pod()
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == part("ServiceAccount", "vrampack-admission")["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is False
    bound = [who["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for who in part(kind)["subjects"]]
    assert bound == ["vrampack-certificates"] * 2
    once = part("Job")["spec"]["template"]["spec"]
    assert pod["securityContext"] == once["securityContext"]
    assert container["securityContext"] == once["containers"][0]["securityContext"]
    assert container["command"] == ["vrampack", "admission"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert not pod.get("hostNetwork", False)
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}


def test_selectors_match_the_webhook_pods_labels() -> None:
    deployment = part("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    for name in ("vrampack-admission", "vrampack-admission-metrics"):
        assert part("Service", name)["spec"]["selector"] == labels
    assert part("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert part("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("shape", SHAPES)
def test_the_grace_period_allows_services_to_drop_the_pod(shape: str) -> None:
    assert webhook_pod()["terminationGracePeriodSeconds"] > settings(shape).deadlines.drain_seconds + 5


def test_the_network_policy_lets_in_api_server_and_scrapers_and_nothing_out() -> None:
    policy = part("NetworkPolicy")["spec"]
    calls, scrapes = policy["ingress"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    assert calls == {"from": EVERYBODY, "ports": [{"protocol": "TCP", "port": 12348}]}
    assert scrapes["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    assert scrapes["ports"] == [{"protocol": "TCP", "port": 12349}]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_webhook_reads_the_files_that_are_mounted_and_no_other_key(shape: str) -> None:
    pod = webhook_pod()
    (container,) = pod["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    secret, tls = volumes["certificate"]["secret"], settings(shape).tls
    assert secret["secretName"] == certificates.SECRET_NAME
    assert [item["path"] for item in secret["items"]] == ["tls.crt", "tls.key"]
    assert [str(tls.cert_file), str(tls.key_file)] == [
        f"{mounted['certificate']}/{name}" for name in ("tls.crt", "tls.key")
    ]
    assert container["args"] == [f"--config={mounted['config']}/admission.yaml"]
    (generator,) = read_kustomization(WEBHOOK / shape)["configMapGenerator"]
    assert generator["name"] == volumes["config"]["configMap"]["name"]


@pytest.mark.parametrize("shape", SHAPES)
def test_adding_the_webhook_leaves_the_shape_unchanged(shape: str) -> None:
    own = read_kustomization(WEBHOOK / shape)
    assert (own["resources"], own["components"]) == ([f"../../{shape}"], ["../common"])
    assert "patches" not in own
    assert own["images"] == [{"name": "ghcr.io/vrampack/vrampack", "newTag": VERSION}]
    assert settings(shape).scheduler_name == ("vrampack" if shape == "second-scheduler" else "")
    shipped = load_settings(MANIFESTS / shape / "extender.yaml")
    assert settings(shape).resources.memory == shipped.resources.memory
