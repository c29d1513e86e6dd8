"""The agent's configuration changed as an administrator does: the file, and new pods that read it."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.node.controlplane import NODE_NAME
from tests.node.metrics import PORTS, TIMEOUT_SECONDS
from tests.node.node import NAMESPACE, LiveNode
from vrampack.cards import well_known

AGENT = "app.kubernetes.io/name=vrampack-agent"
HEAD = {"apiVersion": "vrampack.dev/v1", "kind": "AgentConfiguration"}


def set_injection(node: LiveNode, mode: str) -> None:
    """`injection: MODE`, and all else as it ships."""
    set_agent_settings(node, injection=mode)


def set_agent_settings(node: LiveNode, **settings: object) -> None:
    """These, and all else as it ships; returns when an agent with these settings runs, ready or not."""
    daemonset = node.get("daemonset", "vrampack-agent", "-n", NAMESPACE)
    volumes = daemonset["spec"]["template"]["spec"]["volumes"]
    (name,) = (each["configMap"]["name"] for each in volumes if "configMap" in each)
    patch = {"data": {"agent.yaml": json.dumps(HEAD | settings)}}
    node.kubectl("patch", "configmap", name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch))
    old = node.agent_pids()
    node.kubectl("delete", "pods", "-n", NAMESPACE, "-l", AGENT, "--now")
    node.wait(lambda: (pids := node.agent_pids()) and set(pids).isdisjoint(old), what="another agent runs")


def wait_for_injection(node: LiveNode, mode: str) -> None:
    """Wait until the agent is ready and the node shows that mode."""
    node.wait_ready(AGENT, namespace=NAMESPACE)
    node.wait(lambda: read_injection(node) == mode, what=lambda: f"{mode}: {read_injection(node)}")


def read_injection(node: LiveNode) -> str:
    """The mode that the node shows."""
    return str(node.get("node", NODE_NAME)["metadata"]["labels"].get(well_known.INJECTION, ""))


def read_unready_reason(node: LiveNode) -> str:
    """What the agent answers when kubelet asks whether it is ready; empty when it is, or serves nothing yet."""
    (pod,) = node.list_objects("pods", "-n", NAMESPACE, "-l", AGENT)
    address = pod["status"].get("podIP", "")
    try:
        with urlopen(f"http://{address}:{PORTS['vrampack-agent']}/readyz", timeout=TIMEOUT_SECONDS):
            return ""
    except HTTPError as refusal:
        return refusal.read().decode()
    except OSError:
        return ""
