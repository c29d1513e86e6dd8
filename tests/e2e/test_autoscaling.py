"""Nodes whose pods would find no card elsewhere are annotated for autoscalers, with the shipped rights, and freed again."""

from __future__ import annotations

from collections.abc import Callable

from extender.autoscaling.node_marks import AUTOSCALER_KEYS
from tests.e2e.in_cluster import EXTENDER, ExtenderProgram, installed_configuration
from tests.e2e.shipped_leases import install_leases
from tests.e2e.verb_calls import count_pending_pods, post_bind, post_verb
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from vrampack.cards.well_known import KEPT_FROM_AUTOSCALERS

NEVER = "\nautoscaling: {protect: never}\n"
KEYS = {*AUTOSCALER_KEYS, KEPT_FROM_AUTOSCALERS}


def place_pod(cluster: ControlPlane, ours: ExtenderProgram, name: str, node: str) -> None:
    pod = cluster.request_ok("POST", PODS, pod_manifest(name, 9))
    cluster.wait_until(lambda: count_pending_pods(ours) == 1, what="the extender saw the pod")
    post_verb(ours, "filter", {"Pod": pod, "NodeNames": [node]})
    assert post_bind(ours, pod, node) == ""


def list_kept(cluster: ControlPlane) -> dict[str, set[str]]:
    """Which of the annotations each node has."""
    nodes = cluster.request_ok("GET", "/api/v1/nodes")["items"]
    return {node["metadata"]["name"]: KEYS & node["metadata"].get("annotations", {}).keys() for node in nodes}


def test_nodes_are_kept_from_karpenter_until_nothing_is_kept_any_more(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram]
) -> None:
    install_leases(cluster)
    for name in ("gpu-0", "gpu-1"):
        cards = cards_annotation(published_card(0), published_card(1))
        cluster.add_node(name, cards=cards, labels={"karpenter.sh/nodepool": "gpu"})
    ours = extender()
    for name, node in (("a", "gpu-0"), ("b", "gpu-0"), ("c", "gpu-1"), ("d", "gpu-1")):
        place_pod(cluster, ours, name, node)
    cluster.wait_until(lambda: list_kept(cluster) == {"gpu-0": KEYS, "gpu-1": KEYS}, 60, what="both nodes are kept")

    ours.process.stop()
    extender(fronted=False, configuration=installed_configuration(cluster, EXTENDER) + NEVER)
    cluster.wait_until(lambda: list_kept(cluster) == {"gpu-0": set(), "gpu-1": set()}, 60, what="both are free")
