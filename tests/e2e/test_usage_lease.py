"""An agent's Lease on a real API server: written with its own token and the shipped rights, shown by an extender that reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import yaml

from tests.e2e import in_cluster
from tests.e2e.in_cluster import ExtenderProgram
from tests.support.admission.agent_bench import AGENT, an_agent_pod
from tests.support.admission.bench import SYSTEM
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import cards_annotation, published_card
from vrampack.agent.cluster.usage_lease import UsageLeasePublisher
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import UsageLeaseSettings
from vrampack.cards.card_usage import CardUsage
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials

NODE, CARD = "gpu-usage", "GPU-usage"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/vrampack-usage-{NODE}"


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """What the agent knows of its Node object."""

    name: str
    uid: str


async def publish_usage(kubeconfig: Path, node: ObservedNode, cards: Mapping[str, CardUsage]) -> None:
    """As the agent does, once."""
    api = Api(await load_credentials(kubeconfig))
    settings, metrics = UsageLeaseSettings(namespace=SYSTEM), AgentMetrics("test", node=node.name)
    try:
        publisher = UsageLeasePublisher(api, node, settings, lambda: cards, metrics=metrics, clock=time.monotonic)
        await publisher.publish_usage()
    finally:
        await api.close()


def read_shown_usage(running: ExtenderProgram) -> Json:
    with urlopen(f"{running.url}/inspect/{NODE}", timeout=5) as answer:  # noqa: S310 - our own http address
        (device,) = json.loads(answer.read())["nodes"][0]["devs"]
    return device["reallyUsed"]


async def test_an_agent_writes_its_lease_and_the_extender_shows_it(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram]
) -> None:
    """Created, then merged; both with nothing but what the manifests give."""
    made = cluster.add_node(NODE, cards=cards_annotation(published_card(0, uuid=CARD)))
    node = ObservedNode(NODE, made["metadata"]["uid"])
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    pod = cluster.request_ok("POST", pods, an_agent_pod(NODE))["metadata"]["name"]
    kubeconfig = cluster.kubeconfig(SYSTEM, AGENT, pod=pod)
    shipped = yaml.safe_load(in_cluster.installed_configuration(cluster, in_cluster.EXTENDER))
    reading = yaml.safe_dump(shipped | {"usage_leases": {"namespace": SYSTEM}})
    await publish_usage(kubeconfig, node, {CARD: CardUsage(1000, 3000, 45)})
    running = extender(configuration=reading)
    shown: Json = {"usedMiB": 1000, "peakMiB": 3000, "smPercent": 45}
    cluster.wait_until(lambda: read_shown_usage(running) == shown, what="the extender has listed the Lease")
    await publish_usage(kubeconfig, node, {CARD: CardUsage(2000, 3000)})
    shown = {"usedMiB": 2000, "peakMiB": 3000, "smPercent": None}
    cluster.wait_until(lambda: read_shown_usage(running) == shown, what="the extender has watched the Lease")
    (owner,) = cluster.request_ok("GET", LEASE)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", node.uid)
    cluster.request_ok("DELETE", f"{pods}/{pod}", {"gracePeriodSeconds": 0})
