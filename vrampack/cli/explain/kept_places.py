"""Cards that are kept for pods that are not bound yet, as far as the API server shows them.

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

BINPACK = TunedPolicy("binpack")


def count_kept_places(cluster: ExplainedCluster, pod: Pod) -> ExplainedCluster:
    """The cluster as this pod finds it: with the places that are kept from it."""
    keepers = defaultdict[str, list[Pod]](list)
    for waiting in cluster.waiting_pods:
        if waiting.pod.node_to_keep in cluster.nodes and _keeps_from(waiting.pod, pod):
            keepers[waiting.pod.node_to_keep].append(waiting.pod)
    return cluster.replace_nodes({name: _count_on_node(cluster.nodes[name], pods) for name, pods in keepers.items()})


def _keeps_from(keeper: Pod, pod: Pod) -> bool:
    """A place that waits for its bind is kept from every pod, one that others left from those of no higher priority."""
    return keeper.uid != pod.uid and (keeper.may_bind_late or keeper.priority >= pod.priority)


def _count_on_node(counted: NodeWithHolds, pods: Iterable[Pod]) -> NodeWithHolds:
    """Of pods that find no cards there yet, nothing is kept: the pods that leave still count."""
    for pod in sorted(pods, key=lambda each: (-each.priority, each.created_at, each.uid)):
        request = None if pod.request is None else pod.request.card_request
        verdict = None if request is None else evaluate_node(counted.node, request, BINPACK)
        if request is None or not isinstance(verdict, ScoredCards):
            continue
        hold = replace(build_placed_hold(pod, request, verdict.cards), state="held")
        node = hold_on_node(counted.node, [([card.index for card in verdict.cards], request)])
        counted = replace(counted, node=node, holds=(*counted.holds, hold))
    return counted
