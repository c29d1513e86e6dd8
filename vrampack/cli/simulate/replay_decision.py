"""How one pod's node is chosen in a replay: the same explanation as that of `vrampack policy explain` in a cluster."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from vrampack.cards.pod import Pod
from vrampack.cli.explain.cluster import ClusterListing, ExplainedCluster, to_listed_node
from vrampack.cli.explain.explanations import explain_pending_pod
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields
from vrampack.cli.explain.schema import Explanation
from vrampack.simulator.replay.cluster_snapshot import decode_pod_object
from vrampack.simulator.replay.replayed_cluster import ReplayedCluster
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.filters import decode_node


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
        host = cluster.hosts.by_name[name]
        listed.nodes[name] = replace(to_listed_node(decode_node(node), settings), allocatable=host.allocatable)
        listed.host_uses[name] = host.used
    outlook = cluster.engine.follow_outlook(request)
    seen = ExplainedCluster(listed, settings.unit_mib, settings.rules.build_rules())
    fields = msgspec.json.decode(msgspec.json.encode(item), type=PodSchedulingFields)
    subject = ExplainedPod(pod, fields, decode_pod_object(item).spec, {})
    explanation = explain_pending_pod(subject, settings, request, seen, outlook)
    # What to do about a pod that fits but is not bound depends on a running scheduler, which a replay lacks.
    return explanation if explanation.choice is None else msgspec.structs.replace(explanation, next="")
