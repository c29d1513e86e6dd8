"""docs/recipes/karpenter.md: Karpenter removes nodes by their totals, and the extender keeps those whose pods would find no card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.in_cluster import EXTENDER, ExtenderProgram, installed_configuration
from tests.e2e.recipes.karpenter_pool import SEAT, KarpenterPool, run_pool
from tests.e2e.shipped_leases import install_leases
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.processes import REPOSITORY, ManagedProcess
from vrampack.cards.well_known import PLACEHOLDER_NAMESPACE


class Load(NamedTuple):
    """What each of several nodes has at the beginning: so many pods of so many units, each on a card of its own."""

    nodes: int
    pods: int
    units: int


LOADS = {
    # 32 of 88 units free, by totals two more pods of 14: but 8 on each of the four cards
    "full": Load(nodes=8, pods=4, units=14),
    # 8 fit what is free on the cards of the full nodes: 32 such places for 8 pods
    "small": Load(nodes=8, pods=1, units=8),
    # 12 fit on a full node by totals and on no card of it; the four pods fit together on one of their own nodes, which has to stay
    "large": Load(nodes=4, pods=1, units=12),
}
"""560 of 1,760 units are asked for on 20 nodes."""
NAMES = {kind: [f"{kind}-{number}" for number in range(load.nodes)] for kind, load in LOADS.items()}
NEVER = "\nautoscaling: {protect: never}\n"
PLACEHOLDERS = "\nautoscaling: {placeholders: karpenter}\n"
RIGHT = REPOSITORY / "docs" / "recipes" / "placeholders.yaml"
BOUND_SECONDS = 60
NOMINATED_SECONDS = 25
"""Less than a pod has to wait before a placeholder is made for it."""
PLACEHOLDER_PODS = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
pytestmark = pytest.mark.timeout(300)  # a minute or two; the rest is for a busy machine


@pytest.fixture
def pool(cluster: ControlPlane, tmp_path: Path) -> Iterator[KarpenterPool]:
    with run_pool(cluster, tmp_path) as running:
        yield running


def test_without_protection_nodes_go_whose_pods_find_no_card(
    pool: KarpenterPool, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    """What protection is for. If this fails, Karpenter has learned what a card is, or the test below shows nothing."""
    extender(configuration=installed_configuration(pool.cluster, EXTENDER) + NEVER)
    scheduler()
    _load_nodes(pool)
    pool.consolidate()
    pool.wait_until_settled()
    assert _list_homeless(pool.cluster)


def test_protected_nodes_stay_and_the_pods_of_all_others_find_cards(
    pool: KarpenterPool, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    """Karpenter does not wait for the extender: both look at the loaded nodes at the same time."""
    install_leases(pool.cluster)
    extender()
    scheduler()
    _load_nodes(pool)
    pool.consolidate()
    pool.wait_until_settled()
    assert _list_homeless(pool.cluster) == []
    left = pool.read_nodes()
    assert set(NAMES["full"]) < left.keys()
    assert len(left) == len(NAMES["full"]) + 1  # of the nodes with large pods one stays, whichever
    assert {node["metadata"]["annotations"].get("karpenter.sh/do-not-disrupt") for node in left.values()} == {"true"}


def test_a_node_is_made_for_the_first_pod(
    pool: KarpenterPool, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    extender()
    scheduler()
    pool.cluster.request_ok("POST", PODS, pod_manifest("first", LOADS["full"].units))
    pool.start_nodes(1)
    pool.cluster.wait_until(lambda: not _list_homeless(pool.cluster), BOUND_SECONDS, what="the pod is bound")


def test_a_placeholder_brings_a_node_for_a_pod_that_totals_fit_and_no_card(
    pool: KarpenterPool, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    """Karpenter first says that the pod fits on the node of today, for which it would make none; it makes one for the placeholder."""
    cluster = pool.cluster
    install_leases(cluster)
    cluster.kubectl("apply", "--validate=strict", "-f", RIGHT)
    extender(configuration=installed_configuration(cluster, EXTENDER) + PLACEHOLDERS)
    scheduler()
    (full,) = names = NAMES["full"][:1]
    _load_nodes(pool, {"full": names})
    cluster.request_ok("POST", PODS, pod_manifest("large", LOADS["large"].units))
    cluster.wait_until(
        lambda: _read_nominations(cluster, "large"), NOMINATED_SECONDS, what="Karpenter has a node for the pod"
    )
    (nomination,) = _read_nominations(cluster, "large")
    assert pool.read_nodes()[full]["metadata"]["name"] in nomination
    assert pool.count_claims() == 1
    pool.start_nodes(2)
    cluster.wait_until(lambda: not _list_homeless(cluster), BOUND_SECONDS, what="the pod is bound")
    cluster.wait_until(lambda: not cluster.request_ok("GET", PLACEHOLDER_PODS)["items"], what="the placeholder is gone")
    assert pool.count_claims() == 2


def _read_nominations(cluster: ControlPlane, pod: str) -> Sequence[str]:
    """What Karpenter says of the nodes that it has for the pod."""
    events = cluster.request_ok("GET", "/api/v1/namespaces/default/events")["items"]
    return [
        each["message"] for each in events if (each["reason"], each["involvedObject"]["name"]) == ("Nominated", pod)
    ]


def _load_nodes(pool: KarpenterPool, names: Mapping[str, Sequence[str]] = NAMES) -> None:
    """Each node gets its pods, which may go anywhere afterwards."""
    pool.add_nodes([name for each in names.values() for name in each])
    for kind, load in LOADS.items():
        for name in names.get(kind, ()):
            pool.cluster.request_ok("POST", "/apis/apps/v1/namespaces/default/replicasets", _replicas(name, load))
    wanted = sum(len(names.get(kind, ())) * load.pods for kind, load in LOADS.items())
    pool.cluster.wait_until(lambda: _are_all_bound(pool.cluster, wanted), BOUND_SECONDS, what="all pods are bound")
    pool.open_nodes()


def _replicas(name: str, load: Load) -> Json:
    template = pod_manifest(name, load.units)
    template["metadata"] = {"labels": {"app": name}}
    template["spec"]["tolerations"] = [{"key": SEAT, "value": name}]
    return {
        "metadata": {"name": name},
        "spec": {"replicas": load.pods, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def _are_all_bound(cluster: ControlPlane, wanted: int) -> bool:
    return len(_list_pods(cluster)) == wanted and not _list_homeless(cluster)


def _list_homeless(cluster: ControlPlane) -> Sequence[str]:
    """The pods without a node."""
    return [each["metadata"]["name"] for each in _list_pods(cluster) if "nodeName" not in each["spec"]]


def _list_pods(cluster: ControlPlane) -> Sequence[Json]:
    return [each for each in cluster.request_ok("GET", PODS)["items"] if "deletionTimestamp" not in each["metadata"]]
