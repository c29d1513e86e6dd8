"""gpushare's device plugin, simulated by this process: it offers ids in its own form and sets a container's card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.fakes.kubelet.scripted_plugin import ScriptedPlugin
from tests.node.kubelet import DEVICE_PLUGINS
from tests.node.node import NAMESPACE, LiveNode
from tests.node.served_plugin import serve_plugin

AGENT = "app.kubernetes.io/name=vrampack-agent"


@contextmanager
def older_plugin(ids: Iterable[str], environment: dict[str, str]) -> Iterator[None]:
    """Registered inside the block, and gone afterwards without notice to kubelet."""
    plugin = ScriptedPlugin(DEVICE_PLUGINS, ids, name="aliyungpushare.sock")
    plugin.options.pre_start_required = False
    plugin.envs = environment
    with serve_plugin(plugin):
        yield


@contextmanager
def without_agent(node: LiveNode, label: str) -> Iterator[None]:
    """As before the install: no agent on the node. It comes back with the label."""
    (name,) = (each["metadata"]["name"] for each in node.list_objects("nodes"))
    node.kubectl("label", "node", name, f"{label}-")
    try:
        node.wait(lambda: not node.list_objects("pods", "-n", NAMESPACE, "-l", AGENT), what="the agent is gone")
        yield
    finally:
        node.kubectl("label", "node", name, f"{label}=true")
        node.wait_ready(AGENT, namespace=NAMESPACE)
