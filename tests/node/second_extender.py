"""A simulated second extender: it binds with the shipped one's account and perfect records, and knows no other pod."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from tests.node.controlplane import API_URL, NODE_NAME
from tests.node.node import NAMESPACE, LiveNode
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.node import Card, build_node
from vrampack.cards.node_annotations import read_node
from vrampack.cards.records import write_record
from vrampack.cards.units import DEFAULT_UNIT_MIB
from vrampack.kube.objects import PodObject, to_pod

DEPLOYMENT = "deployment/vrampack-scheduler"
REPLICAS = 2
ACCOUNT = "vrampack-extender"


@contextmanager
def without_scheduler(node: LiveNode) -> Iterator[None]:
    """The shipped scheduler and extender are away: what is not bound inside waits until they are back."""
    node.kubectl("scale", DEPLOYMENT, "-n", NAMESPACE, "--replicas=0")
    try:
        selector = ("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-scheduler")
        node.wait(lambda: not node.list_objects(*selector), what="the schedulers are gone")
        yield
    finally:
        node.kubectl("scale", DEPLOYMENT, "-n", NAMESPACE, f"--replicas={REPLICAS}")
        node.wait_ready("app.kubernetes.io/name=vrampack-scheduler", namespace=NAMESPACE)


class SecondExtender:
    """Binds where it is told."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._token = node.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE).stdout.strip()

    def bind(self, name: str, uuid: str) -> None:
        """Onto this card, as if it were empty."""
        self.bind_with(name, self._record(name, uuid))

    def bind_with(self, name: str, annotations: Mapping[str, str]) -> None:
        """With any record."""
        pod = self._node.get("pod", name)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": pod["metadata"]["uid"], "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME},
        }
        self._node.kubectl(
            "--kubeconfig=/dev/null",
            f"--server={API_URL}",
            f"--certificate-authority={self._node.cluster.authority.ca_file}",
            f"--token={self._token}",
            "create",
            f"--raw=/api/v1/namespaces/default/pods/{name}/binding",
            "-f",
            "-",
            input=json.dumps(body),
        )

    def _record(self, name: str, uuid: str) -> dict[str, str]:
        pod = to_pod(msgspec.json.decode(json.dumps(self._node.get("pod", name)), type=PodObject))
        annotations = self._node.get("node", NODE_NAME)["metadata"]["annotations"]
        facts = read_node(NODE_NAME, annotations, {}, unit_mib=DEFAULT_UNIT_MIB).facts
        cards = tuple(Card(each.index, each.units, each.memory_mib, each.uuid) for each in facts.cards)
        node = build_node(facts, cards, unit_mib=DEFAULT_UNIT_MIB)
        if pod.request is None:
            raise ValueError(f"{name} asks for nothing")
        chosen = [card for card in cards if card.uuid == uuid]
        return write_record(allocate_cards(node, chosen, pod.request), pod.request, node, now_ns=time.time_ns())
