"""What is kept for pods that are not bound yet, as far as the API server shows them: cards, CPU and what else they take of their node.

It shows the node: of pods for which others were evicted, by the scheduler or by card, and from Kubernetes 1.35 on of pods that are bound late.
Which cards the running extender keeps there only its own `/inspect` knows; these are those that it would choose after a restart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from policies.evaluate import evaluate_node
from policies.policy import ScoredCards
from policies.trial_placement import hold_on_node
from vrampack.cards.holding import build_placed_hold
from vrampack.cards.pod import Pod
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.explain.cluster import ExplainedCluster, NodeWithHolds
from vrampack.cli.explain.pod import ExplainedPod
from vrampack.kube.node_filters import read_host_use

BINPACK = TunedPolicy("binpack")


def count_kept_places(cluster: ExplainedCluster, pod: Pod) -> ExplainedCluster:
    """The cluster as this pod finds it: with the places that are kept from it."""
    keepers = defaultdict[str, list[ExplainedPod]](list)
    for waiting in cluster.waiting_pods:
        if waiting.pod.node_to_keep in cluster.nodes and _keeps_from(waiting.pod, pod):
            keepers[waiting.pod.node_to_keep].append(waiting)
    return cluster.replace_nodes(
        {name: _count_on_node(cluster.nodes[name], waiting, pod) for name, waiting in keepers.items()}
    )


def _keeps_from(keeper: Pod, pod: Pod) -> bool:
    """A place that waits for its bind is kept from every pod, one that others left from those of no higher priority."""
    return keeper.uid != pod.uid and (keeper.may_bind_late or keeper.priority >= pod.priority)


def _count_on_node(counted: NodeWithHolds, keepers: Iterable[ExplainedPod], subject: Pod) -> NodeWithHolds:
    """Of pods that find no cards there yet, no cards are kept: the pods that leave still count.

    What else they take counts with or without cards, as the scheduler counts it: of pods that are nominated, and no less important.
    """
    for keeper in sorted(keepers, key=lambda each: (-each.pod.priority, each.pod.created_at, each.pod.uid)):
        pod = keeper.pod
        if pod.nominated_node and pod.priority >= subject.priority:
            counted = replace(counted, used=counted.used + read_host_use(keeper.spec))
        request = None if pod.request is None else pod.request.card_request
        verdict = None if request is None else evaluate_node(counted.node, request, BINPACK)
        if request is None or not isinstance(verdict, ScoredCards):
            continue
        hold = replace(build_placed_hold(pod, request, verdict.cards), state="held")
        node = hold_on_node(counted.node, [([card.index for card in verdict.cards], request)])
        counted = replace(counted, node=node, holds=(*counted.holds, hold))
    return counted
