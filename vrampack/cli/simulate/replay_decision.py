"""How one pod's node is chosen in a replay: the same explanation as that of `vrampack policy explain` in a cluster."""

from __future__ import annotations

import msgspec

from vrampack.cards.pod import Pod
from vrampack.cli.explain.cluster import ClusterListing, ExplainedCluster, to_listed_node
from vrampack.cli.explain.explanations import explain_pending_pod
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields
from vrampack.cli.explain.schema import Explanation
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPod
from vrampack.simulator.replay.replayed_cluster import ReplayedCluster
from vrampack.simulator.resource_kinds import Object


class DecisionWatcher:
    """Explains one pod when its turn comes; `explanation` is None until then."""

    def __init__(self, pod_name: tuple[str, str]) -> None:
        self._pod_name = pod_name
        self.explanation: Explanation | None = None

    def __call__(self, cluster: ReplayedCluster, item: Object, pod: Pod) -> None:
        if (pod.namespace, pod.name) == self._pod_name and pod.request is not None:
            self.explanation = explain_decision(cluster, item, pod)


def explain_decision(cluster: ReplayedCluster, item: Object, pod: Pod) -> Explanation:
    """Every node and card as this pod finds it now, with the scores by the engine's outlook."""
    request, settings = pod.request, cluster.settings
    if request is None:
        raise ValueError(f"pod {pod} asks for no cards")
    listed = ClusterListing(pods={each.uid: each for each in cluster.ledger.list_pods() if each.node_name})
    for name, node in cluster.nodes.items():
        encoded = msgspec.json.encode(node)
        listed.nodes[name] = to_listed_node(msgspec.json.decode(encoded, type=ExaminedNode), settings)
    outlook = cluster.engine.follow_outlook(request)
    seen = ExplainedCluster(listed, settings.unit_mib, settings.rules.build_rules())
    body = msgspec.json.encode(item)
    fields, spec = msgspec.json.decode(body, type=PodSchedulingFields), msgspec.json.decode(body, type=ExaminedPod).spec
    explanation = explain_pending_pod(ExplainedPod(pod, fields, spec, {}), settings, request, seen, outlook)
    # What to do about a pod that fits but is not bound depends on a running scheduler, which a replay lacks.
    return explanation if explanation.choice is None else msgspec.structs.replace(explanation, next="")
