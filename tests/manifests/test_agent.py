"""The agents' pods: where they go, what they see of their node, and what they may not do there."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.support.manifests import (
    MANIFESTS,
    SHAPES,
    Json,
    find_containers,
    find_pod_template,
    find_workload,
    load_documents,
    load_rendered,
)
from vrampack.agent.events import AgentEventReason
from vrampack.cli.version import VERSION
from vrampack.kube.events import MAX_MESSAGE_CHARACTERS

FOLDERS = {
    "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", "Directory", False),
    "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", "Directory", True),
    "/sys/fs/cgroup": ("/sys/fs/cgroup", "Directory", True),
    "/run/vrampack": ("/run/vrampack", "DirectoryOrCreate", False),
    "/etc/cdi": ("/etc/cdi", "DirectoryOrCreate", False),
    "/var/run/cdi": ("/var/run/cdi", "DirectoryOrCreate", False),
    "/node/proc": ("/proc", "Directory", True),
    "/node/etc/vrampack": ("/etc/vrampack", "DirectoryOrCreate", True),
    "/var/lib/vrampack/preload": ("/var/lib/vrampack/preload", "DirectoryOrCreate", False),
}
"""Every folder of the node that an agent mounts: path in the agent, path on the node, its hostPath type, whether it is read-only."""
LABELS = {
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "nvidia.com/gpu.present",
}


def daemon_set(name: str) -> Json:
    return find_workload(name, "vrampack-agent")


def pod(name: str) -> Json:
    return find_pod_template(daemon_set(name))["spec"]


def agent(name: str) -> Json:
    (container,) = find_containers(daemon_set(name))
    return container


def settings(name: str) -> Json:
    (text,) = [item["data"]["agent.yaml"] for item in load_rendered(name) if "agent.yaml" in item.get("data", {})]
    return yaml.safe_load(text)


def test_the_agent_is_the_same_in_both_shapes() -> None:
    first, second = (daemon_set(name) for name in SHAPES)
    assert first == second


def test_the_agent_is_root_without_a_capability() -> None:
    assert pod("kubeadm")["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert agent("kubeadm")["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostIPC"}.isdisjoint(pod("kubeadm"))
    assert pod("kubeadm")["hostPID"] is True  # or the driver shows it no process of a container


def test_the_agent_mounts_only_the_listed_folders_of_its_node() -> None:
    volumes = {volume["name"]: volume["hostPath"] for volume in pod("kubeadm")["volumes"] if "hostPath" in volume}
    seen = {
        mount["mountPath"]: (*volumes[mount["name"]].values(), mount.get("readOnly", False))
        for mount in agent("kubeadm")["volumeMounts"]
        if mount["name"] in volumes
    }
    assert seen == FOLDERS


def test_the_agents_environment_requests_the_driver_and_every_card() -> None:
    environment = {entry["name"]: entry.get("value") for entry in agent("kubeadm")["env"]}
    assert environment == {
        "NODE_NAME": None,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }
    assert agent("kubeadm")["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_any_label_of_gpu_nodes_selects_a_node() -> None:
    wanted = pod("kubeadm")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"] for term in wanted["nodeSelectorTerms"]]
    assert all(len(term) == 1 and (term[0]["operator"], term[0]["values"]) == ("In", ["true"]) for term in terms)
    assert {term[0]["key"] for term in terms} == LABELS
    assert {each["key"] for each in pod("kubeadm")["tolerations"]} == {
        "nvidia.com/gpu",
        "node-role.kubernetes.io/control-plane",
    }


def test_the_agent_is_schedulable_without_our_scheduler_or_resource() -> None:
    asked = agent("kubeadm")["resources"]
    assert "schedulerName" not in pod("kubeadm")
    assert set(asked["requests"]) == {"cpu", "memory"}
    assert set(asked["limits"]) == {"memory"}


def test_the_agent_starts_with_the_mounted_file() -> None:
    (mount,) = [mount for mount in agent("kubeadm")["volumeMounts"] if mount["name"] == "config"]
    assert agent("kubeadm")["command"] == ["vrampack", "agent"]
    assert agent("kubeadm")["args"] == [f"--config={mount['mountPath']}/agent.yaml"]
    assert agent("kubeadm")["image"] == f"ghcr.io/vrampack/vrampack:{VERSION}"


@pytest.mark.parametrize(("probe", "path"), [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")])
def test_probes_use_the_agents_listen_address(probe: str, path: str) -> None:
    assert agent("kubeadm")[probe]["httpGet"] == {"path": path, "port": "health"}
    assert agent("kubeadm")["ports"] == [{"name": "health", "containerPort": 12347}]


def test_the_shipped_agent_configuration_changes_no_default() -> None:
    assert settings("kubeadm") == {"apiVersion": "vrampack.dev/v1", "kind": "AgentConfiguration"}


def test_a_rollout_replaces_a_tenth_of_the_agents_at_a_time() -> None:
    """Of 1,000 nodes one by one, each of which takes seconds to become ready, it would last for hours."""
    strategy = daemon_set("kubeadm")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}


def test_the_quota_admits_an_agent_on_each_of_5000_nodes() -> None:
    assert pod("kubeadm")["priorityClassName"] == "system-node-critical"
    (quota,) = [
        item["spec"] for item in load_rendered("kubeadm") if item["metadata"]["name"] == "vrampack-critical-agents"
    ]
    assert quota["scopeSelector"]["matchExpressions"] == [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    ]
    assert int(quota["hard"]["pods"]) >= 2 * 5000


@pytest.mark.parametrize("name", SHAPES)
def test_the_namespace_admits_pods_that_mount_folders_of_the_node(name: str) -> None:
    """No stricter profile admits them. Nothing that needs more than that may run in this namespace."""
    labels = load_rendered(name)[0]["metadata"]["labels"]
    profiles = {key: value for key, value in labels.items() if key.startswith("pod-security.kubernetes.io/")}
    assert profiles == {
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }


def test_the_network_policy_lets_only_scrapers_reach_the_agent() -> None:
    """Kubelet's probes come from the pod's own node, which no policy blocks; the pods are not in the host's network."""
    (policy,) = load_documents(MANIFESTS / "agent" / "network.yaml")
    labels = find_pod_template(daemon_set("kubeadm"))["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
            "ports": [{"protocol": "TCP", "port": 12347}],
        }
    ]


def test_the_policy_admits_every_event_that_an_agent_writes() -> None:
    """With the reasons and lengths that the code uses; the policy's own suite checks the rest."""
    documents = load_documents(MANIFESTS / "admission" / "agent.yaml")
    (policy,) = [
        each["spec"]
        for each in documents
        if each["metadata"]["name"] == "vrampack-agent-events" and "validations" in each["spec"]
    ]
    rule = policy["validations"][1]["expression"]
    (prefix,) = re.findall(r"[?]reason[.]orValue\(''\)[.]startsWith\('(\w+)'\)", rule)
    (longest,) = re.findall(r"[?]message[.]orValue\(''\)[.]size\(\) <= (\d+)", rule)
    assert [reason.value for reason in AgentEventReason if not reason.value.startswith(prefix)] == []
    assert int(longest) >= MAX_MESSAGE_CHARACTERS
