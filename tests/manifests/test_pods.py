"""The shipped pods of the extender: locked down, schedulable without themselves, probed where they listen, given time to end."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from extender.settings import ExtenderConfiguration
from tests.support.control_plane.binaries import read_pinned_version
from tests.support.manifests import (
    MANIFESTS,
    SHAPES,
    Json,
    find_containers,
    find_pod_template,
    find_workload,
    load_documents,
    load_objects,
    load_rendered,
)
from vrampack.cards import well_known
from vrampack.cli.version import VERSION
from vrampack.config.addresses import is_loopback, parse_address

SCHEDULER_STOPS_SECONDS = 5
"""How long kube-scheduler waits at its end for requests to its own listener."""


OF_THE_EXTENDER = {"second-scheduler": "vrampack-scheduler", "kubeadm": "vrampack-extender"}
"""The workload it is in, by shape."""


def pod(name: str) -> Json:
    return find_pod_template(find_workload(name, OF_THE_EXTENDER[name]))["spec"]


def every_container(name: str) -> dict[str, Json]:
    return {made["name"]: made for made in find_containers(find_workload(name, OF_THE_EXTENDER[name]))}


def settings(name: str) -> ExtenderConfiguration:
    """What the extender reads from the ConfigMap that its pod mounts."""
    (text,) = [item["data"]["extender.yaml"] for item in load_rendered(name) if "extender.yaml" in item.get("data", {})]
    return ExtenderConfiguration.model_validate(yaml.safe_load(text))


@pytest.mark.parametrize("name", SHAPES)
def test_no_pod_runs_as_root_and_containers_are_locked_down(name: str) -> None:
    assert pod(name)["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for made in every_container(name).values():
        assert made["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all(mount["readOnly"] for mount in made["volumeMounts"])
    assert [volume for volume in pod(name)["volumes"] if "configMap" not in volume] == []


def test_only_the_shape_that_needs_the_host_network_has_it() -> None:
    assert {name: pod(name).get("hostNetwork", False) for name in SHAPES} == {
        "second-scheduler": False,
        "kubeadm": True,
    }


@pytest.mark.parametrize("name", SHAPES)
def test_our_pods_are_schedulable_without_our_scheduler_or_resource(name: str) -> None:
    """One that asked for GPU memory, or named our scheduler, would wait for itself."""
    assert "schedulerName" not in pod(name)
    for made in every_container(name).values():
        asked = {**made["resources"].get("requests", {}), **made["resources"].get("limits", {})}
        assert set(asked) <= {"cpu", "memory"}
        assert {"cpu", "memory"} <= set(made["resources"]["requests"])


@pytest.mark.parametrize("container", ["extender", "agent", "admission"])
def test_requests_and_limits_match_the_manual_and_exceed_measured_figures(container: str) -> None:
    """A request is more than the largest figure, a limit more than twice that. Figures are millions of bytes."""
    page = (MANIFESTS.parent / "docs" / "install.md").read_text()
    (row,) = re.findall(rf"^\| `{container}`[^|]*\|(.*)\|$", page, re.MULTILINE)
    requests, limit, *figures = (cell.strip() for cell in row.split("|"))
    webhook = load_documents(MANIFESTS / "webhook" / "common" / "deployment.yaml")
    for items in [webhook] if container == "admission" else map(load_rendered, SHAPES):
        workloads = [item for item in items if find_pod_template(item)]
        (asked,) = [
            made["resources"] for item in workloads for made in find_containers(item) if made["name"] == container
        ]
        assert f"{asked['requests']['cpu']}, {asked['requests']['memory']}" == requests
        assert asked["limits"]["memory"] == limit
    largest = max(int(figure) for figure in figures) * 1e6
    assert largest < int(requests.partition(", ")[2].removesuffix("Mi")) * 2**20
    assert 2 * largest < int(limit.removesuffix("Mi")) * 2**20


@pytest.mark.parametrize("name", [*SHAPES, "examples"])
def test_every_image_has_a_tag(name: str) -> None:
    images = [made["image"] for item in load_objects(MANIFESTS / name) for made in find_containers(item)]
    assert images
    assert [image for image in images if not re.fullmatch(r"[a-z0-9.-]+\.[a-z]+/[^:@]+:[\w.-]+", image)] == []


def test_images_are_the_versions_that_are_tested() -> None:
    assert {made["image"] for made in every_container("second-scheduler").values()} == {
        f"ghcr.io/vrampack/vrampack:{VERSION}",
        f"registry.k8s.io/kube-scheduler:{read_pinned_version()}",
    }
    assert every_container("kubeadm")["extender"]["image"] == f"ghcr.io/vrampack/vrampack:{VERSION}"


@pytest.mark.parametrize("name", SHAPES)
def test_the_extender_reads_the_files_that_are_mounted(name: str) -> None:
    """The scheduler too, where both are one pod; a static pod's file is on its host, out of reach."""
    extender = every_container(name)["extender"]
    mounted = {mount["name"]: mount["mountPath"] for mount in extender["volumeMounts"]}
    flags = {"extender": "--config={}/extender.yaml", "scheduler": "--scheduler-config={}/scheduler.yaml"}
    assert extender["command"] == ["vrampack", "serve"]
    *files, pod = extender["args"]
    assert files == [flags[volume].format(path) for volume, path in mounted.items()]
    own = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in extender["env"]}
    fields = {f"$({variable})": field for variable, field in own.items()}
    assert [fields[part] for part in pod.removeprefix("--pod=").split("/")] == [
        "metadata.namespace",
        "metadata.name",
        "metadata.uid",
    ]
    assert ("scheduler" in mounted) is (name == "second-scheduler")


def test_both_programs_of_a_pod_read_the_same_scheduler_configuration() -> None:
    made = every_container("second-scheduler")
    (scheduler,) = [flag for flag in made["scheduler"]["args"] if flag.startswith("--config=")]
    assert f"--scheduler-{scheduler.removeprefix('--')}" in made["extender"]["args"]
    (mount,) = made["scheduler"]["volumeMounts"]
    assert mount in made["extender"]["volumeMounts"]


@pytest.mark.parametrize("name", SHAPES)
def test_verbs_listen_on_loopback_only(name: str) -> None:
    assert settings(name).listen.verbs == "127.0.0.1:12345"


@pytest.mark.parametrize("name", SHAPES)
def test_probes_use_the_extenders_listen_address(name: str) -> None:
    """Kubelet asks the pod's address, unless told another: then the listener may be on loopback."""
    extender = every_container(name)["extender"]
    _, port = parse_address(settings(name).listen.health)
    named = {made["name"]: made["containerPort"] for made in extender["ports"]}
    paths: dict[str, Any] = {}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = extender[probe]["httpGet"]
        assert named[asked["port"]] == port
        assert (asked.get("host") == "127.0.0.1") == is_loopback(settings(name).listen.health)
        paths[probe] = asked["path"]
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}


def test_the_extender_starts_before_the_scheduler_and_ends_after_it() -> None:
    (extender,) = pod("second-scheduler")["initContainers"]
    (scheduler,) = pod("second-scheduler")["containers"]
    assert (extender["name"], extender["restartPolicy"]) == ("extender", "Always")
    assert scheduler["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "scheduler", "scheme": "HTTPS"}
    assert "startupProbe" in extender


@pytest.mark.parametrize("name", SHAPES)
def test_the_grace_period_allows_running_binds_to_finish(name: str) -> None:
    needed = SCHEDULER_STOPS_SECONDS + settings(name).deadlines.drain_seconds
    assert pod(name)["terminationGracePeriodSeconds"] > needed + 2


def test_selectors_match_the_pods_labels() -> None:
    made = {item["kind"]: item for item in load_rendered("second-scheduler")}
    labels = find_pod_template(made["Deployment"])["metadata"]["labels"]
    assert made["Service"]["spec"]["selector"] == labels
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    spreads = pod("second-scheduler")["topologySpreadConstraints"]
    assert [spread["labelSelector"]["matchLabels"] for spread in spreads] == [labels, labels]


def test_a_drain_leaves_a_replica_and_a_rollout_leaves_both() -> None:
    made = {item["kind"]: item for item in load_rendered("second-scheduler")}
    assert made["Deployment"]["spec"]["replicas"] == 2
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert made["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_network_policy_opens_exactly_the_container_ports() -> None:
    made = {item["kind"]: item for item in load_rendered("second-scheduler")}
    ports = {port["containerPort"] for each in every_container("second-scheduler").values() for port in each["ports"]}
    (rule,) = made["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == ports
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    assert made["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]
    assert made["Service"]["spec"]["ports"] == [{"name": "metrics", "port": 12346, "targetPort": 12346}]


@pytest.mark.parametrize("name", SHAPES)
def test_the_quota_admits_the_shipped_priority_class(name: str) -> None:
    assert pod(name)["priorityClassName"] == "system-cluster-critical"
    (quota,) = [item["spec"] for item in load_rendered(name) if item["metadata"]["name"] == "vrampack-critical-pods"]
    assert quota["scopeSelector"]["matchExpressions"] == [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
    ]


def test_the_first_example_is_two_pods_that_share_a_card() -> None:
    made = {item["kind"]: item for item in load_objects(MANIFESTS / "examples")}
    example = made["StatefulSet"]
    (container,) = find_containers(example)
    assert (example["metadata"]["name"], example["spec"]["replicas"]) == ("app-3g-v1", 2)
    assert example["spec"]["podManagementPolicy"] == "Parallel"
    assert container["resources"]["limits"][well_known.MEMORY_RESOURCE] == 4
