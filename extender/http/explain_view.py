"""Explains one request with the running service's data, node by node and card by card, with the score term by term.

It uses the ledger as the pod would find it now. Soft reservations of other pods only lower ranks, so it leaves them out
(`/inspect` lists them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.scheduling.pod_generations import PodGenerations
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from policies.engine.engine import Engine
from policies.evaluate import evaluate_node, list_score_terms
from policies.outlook import Outlook
from policies.policy import ScoredCards
from vrampack.cards.fit import count_missing_units, find_card_obstacle
from vrampack.cards.inspection import build_instances_json
from vrampack.cards.node import Card, Node
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.tuned_policy import TunedPolicy

Json = dict[str, object]


class UnknownSubjectError(Exception):
    """The query names neither a waiting pod nor a request."""


class ExplainView:
    """Over one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        nominator: Nominator,
        engine: Engine,
        generations: PodGenerations,
        group_fit: GroupFit,
    ) -> None:
        self._ledger = ledger
        self._group_fit = group_fit
        self._nominator = nominator
        self._engine = engine
        self._generations = generations

    def find_subject(self, query: Mapping[str, str]) -> Pod:
        """The pod of `pod=NAMESPACE/NAME`, or a made-up one that asks for `units` (`count`, `whole`, `namespace`).

        Raises `UnknownSubjectError`.
        """
        if "pod" in query:
            namespace, _, name = query["pod"].rpartition("/")
            for pod in self._ledger.list_unbound_pods():
                if (pod.namespace, pod.name) == (namespace or "default", name) and pod.request is not None:
                    return pod
            raise UnknownSubjectError(f"no waiting pod {query['pod']} requests GPU memory")
        try:
            units, count = int(query["units"]), int(query.get("count", "1"))
        except (KeyError, ValueError) as error:
            raise UnknownSubjectError("give pod=NAMESPACE/NAME, or units=N with count, whole and namespace") from error
        if units < 1 or count < 1:
            raise UnknownSubjectError("units and count begin at 1")
        request = CardRequest(units, count, whole=query.get("whole") == "true")
        pod = Pod("", query.get("namespace", "default"), "", request=PodRequest(request, ()))
        return self._ledger.in_force.resolve_pod(pod)

    def describe_request(self, pod: Pod, pod_request: PodRequest) -> Json:
        """What the pod asks for, and the policy that ranks nodes for it."""
        request = pod_request.card_request
        shortfall = self._group_fit.find_shortfall(pod)
        return {
            "generation": self._generations.current,
            "policy": self._engine.choose_policy(pod_request).name,
            "profile": "" if pod_request.profile is None else pod_request.profile.name,
            "namespace": pod.namespace,
            "name": pod.name,
            "units": request.units,
            "count": request.count,
            "whole": request.whole,
            "groupObstacle": None if shortfall is None else str(shortfall),
        }

    def describe_nodes(self, pod: Pod, pod_request: PodRequest) -> Iterator[Json]:
        """Every node that has cards or a problem, in the order of names."""
        policy = self._engine.choose_policy(pod_request)
        outlook = self._engine.follow_outlook(pod_request)
        for name in sorted(self._ledger.list_node_names()):
            self._nominator.note_caller(pod)  # other calls may have come between two nodes
            node = self._nominator.get_node_for_pod(name, pod.uid)
            if node is not None and (node.cards or node.problem):
                yield describe_node(node, pod_request.card_request, policy, outlook)


def describe_node(node: Node, request: CardRequest, policy: TunedPolicy, outlook: Outlook) -> Json:
    """Whether the request fits, the score and its terms, and every card."""
    verdict = evaluate_node(node, request, policy, outlook)
    described: Json = {"name": node.name, "reason": None, "score": None, "terms": [], "chosen": []}
    if isinstance(verdict, ScoredCards):
        terms = list_score_terms(policy, node, verdict, request, outlook)
        described |= {
            "score": verdict.score,
            "terms": [{"name": term.name, "value": term.value} for term in terms],
            "chosen": sorted(card.index for card in verdict.cards),
        }
    else:
        described["reason"] = verdict.reason.value
    return described | {"cards": [_describe_card(node, card, request) for card in node.cards]}


def _describe_card(node: Node, card: Card, request: CardRequest) -> Json:
    reason = find_card_obstacle(node, card, request)
    is_hopeless = reason is not None and reason.is_unresolvable
    return {
        "index": card.index,
        "uuid": card.uuid,
        "model": card.model,
        "freeUnits": card.free_units,
        "totalUnits": card.units,
        "reason": None if reason is None else reason.value,
        "missingUnits": None if is_hopeless else count_missing_units(card, request),
        **build_instances_json(card),
    }
