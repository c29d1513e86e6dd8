"""Evaluates every node and card for one pod, with the engine that answers the scheduler and its code for single cards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from extender.policy_settings import PolicyTuning
from policies import evaluate
from policies.evaluate import list_score_terms, sort_by_score
from policies.outlook import Outlook
from policies.policy import ScoredCards, ScoreTerm
from vrampack.cards import well_known
from vrampack.cards.fit import Unfit, count_missing_units, find_card_obstacle
from vrampack.cards.holding import Hold
from vrampack.cards.node import Card, Node
from vrampack.cards.payment import drop_unpaid_cards
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.scheduler_totals import count_unasked_units
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.explain.cluster import ExplainedCluster, NodeWithHolds
from vrampack.cli.explain.outlook import build_outlook
from vrampack.cli.explain.schema import HolderView
from vrampack.kube.examined_objects import ExaminedPodSpec
from vrampack.kube.node_filters import (
    SELECTOR_REASON,
    TAINT_REASON,
    UNSCHEDULABLE_REASON,
    Obstacle,
    list_placement_obstacles,
    list_shortages,
    read_host_use,
)

EXCLUSIONS = (UNSCHEDULABLE_REASON, TAINT_REASON, SELECTOR_REASON)
"""A cordon ends soon; a taint may be tolerated; labels say that the node is not meant."""
PERMISSIONS = (UnfitReason.MODEL, UnfitReason.UUID, UnfitReason.NOT_PERMITTED, UnfitReason.RESERVED)
"""Why a card is not the pod's to take, however large it is."""


@dataclass(frozen=True, slots=True)
class EvaluatedCard:
    """One card, the reason why the pod may not take it (None: it may), and the pods that hold it."""

    card: Card
    reason: UnfitReason | None
    missing_units: int | None
    """Units to free; None if freeing does not help."""
    pods: tuple[HolderView, ...]


@dataclass(frozen=True, slots=True)
class EvaluatedNode:
    """One node, the reason why filter refuses it (None: it does not), and its cards by index."""

    node: Node
    reason: UnfitReason | None
    cards: tuple[EvaluatedCard, ...]
    chosen_cards: tuple[Card, ...] = ()
    """Where the policy would put the pod."""
    score: float | None = None
    terms: tuple[ScoreTerm, ...] = ()
    """The terms that add up to the score."""
    exclusions: tuple[Obstacle, ...] = ()
    """Why the pod may not use the node, whatever runs there."""
    shortages: tuple[Obstacle, ...] = ()
    """What the node has too little of, besides its cards; empty if the pod may not use it anyway."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Why the scheduler's own filters reject it."""
        return self.exclusions + self.shortages

    @property
    def exclusion_rank(self) -> int:
        """How far the node is from being one that the pod may use; 0 if it may."""
        return max((EXCLUSIONS.index(each.reason) + 1 for each in self.exclusions), default=0)

    @property
    def fits(self) -> bool:
        return self.reason is None and not self.obstacles

    @property
    def has_no_memory(self) -> bool:
        """Whether there is nothing to show: no cards and no problem."""
        return self.reason is UnfitReason.NO_MEMORY and not self.node.problem


@dataclass(frozen=True, slots=True)
class ClusterEvaluation:
    """All nodes, the nearest first, and those that fit, in the policy's order."""

    nodes: tuple[EvaluatedNode, ...]
    fitting_nodes: tuple[EvaluatedNode, ...]

    @property
    def chosen_node(self) -> EvaluatedNode | None:
        """The best node that fits."""
        return self.fitting_nodes[0] if self.fitting_nodes else None


def evaluate_cluster(
    cluster: ExplainedCluster,
    tuning: PolicyTuning,
    pod_request: PodRequest,
    spec: ExaminedPodSpec = ExaminedPodSpec(),  # noqa: B008 - a frozen value
    outlook: Outlook | None = None,
    *,
    resource: str = well_known.MEMORY_RESOURCE,
) -> ClusterEvaluation:
    """How the scheduler's own filters, and the extender's filter and prioritize, would answer for every node of the cluster.

    `outlook` is what policies know besides the nodes; None: what a newly started extender knows.
    """
    policy = tuning.choose_policy(pod_request.policy, pod_request.profile)
    outlook = build_outlook(cluster, policy, pod_request) if outlook is None else outlook
    verdicts = {
        name: evaluate.evaluate_node(seen.node, pod_request.card_request, policy, outlook)
        for name, seen in cluster.nodes.items()
    }
    evaluated = {
        name: _evaluate_node(cluster.nodes[name], verdict, pod_request, policy, outlook)
        for name, verdict in verdicts.items()
    }
    for name, seen in cluster.nodes.items():
        evaluated[name] = _add_obstacles(evaluated[name], seen, pod_request, spec, resource)
    nearest = sorted(evaluated.values(), key=lambda each: (_distance(each, pod_request.card_request), each.name))
    ranked = (evaluated[name] for name in sort_by_score(verdicts))
    return ClusterEvaluation(tuple(nearest), tuple(node for node in ranked if node.fits))


def select_cards_to_free(node: EvaluatedNode, request: CardRequest, *, only_usable: bool) -> list[EvaluatedCard]:
    """The cards of the node, as many as asked for, that lack least, if freeing units or healing them would help; else empty."""
    count = request.count
    possible = [each for each in node.cards if each.missing_units is not None]
    if only_usable:
        possible = [each for each in possible if each.card.is_usable]
    possible.sort(key=lambda each: (each.missing_units or 0, not each.card.is_usable, each.card.index))
    if request.payment is not None:  # of equal cards those that lack most are dropped
        paid = drop_unpaid_cards([each.card for each in possible], request.payment, count)
        possible = [each for each in possible if each.card in paid]
    return sorted(possible[:count], key=lambda each: each.card.index) if len(possible) >= count else []


def select_permitted_cards(node: EvaluatedNode, request: CardRequest) -> Sequence[Card]:
    """The cards that the pod's annotations and the rules leave to it, also those that are too small."""
    cards: Sequence[Card] = [each.card for each in node.cards]
    for reason in PERMISSIONS:
        cards = cards if reason.check is None else reason.check.select_cards(cards, request)
    return cards


def count_units_to_free(cards: Iterable[EvaluatedCard]) -> int:
    return sum(each.missing_units or 0 for each in cards)


def describe_card_reason(node: EvaluatedNode, card: EvaluatedCard, request: CardRequest) -> str:
    """The card's reason, in a text that stands alone."""
    # Other reasons have their text in docs/reasons.md.
    texts = {
        UnfitReason.TOO_LARGE: "smaller than requested",
        UnfitReason.MODEL: f"model {card.card.model or 'not known'} is not allowed",
        UnfitReason.UUID: "its uuid is not requested",
        UnfitReason.NOT_PERMITTED: f"model {card.card.model or 'not known'} is not allowed by a rule",
        UnfitReason.RESERVED: "reserved by a rule",
        UnfitReason.NOT_SHAREABLE: "may not be shared with its pods",
        UnfitReason.POD_LIMIT: "has as many pods as a rule allows",
        UnfitReason.INSTANCE_LIMIT: _describe_instances(card.card, request),
        UnfitReason.UNPAID: f"only for a request for all of its {card.card.units} units",
        UnfitReason.NO_ROOM: "not enough free memory",
        UnfitReason.NO_EMPTY_CARD: "not empty",
    }
    parts = []
    if card.reason is not None and card.reason is not UnfitReason.UNHEALTHY:
        parts.append(texts.get(card.reason, card.reason.value))
    if card.reason is None or not card.reason.is_unresolvable:
        parts += list_card_faults(card.card)
    if card.card.is_overcommitted:
        parts.append(f"overcommitted by {card.card.used_units - card.card.units}")
    if card.reason is None:
        too_few = f"has room, but {request.count} such cards are asked for"
        unpaid = "has room, but the pod asks for too few units together"
        parts.append("fits" if node.reason is None else unpaid if node.reason is UnfitReason.UNPAID else too_few)
    return "; ".join([*parts, *(obstacle.detail for obstacle in node.obstacles)])


def _describe_instances(card: Card, request: CardRequest) -> str:
    room = card.instances
    if room is None:
        return ""
    return f"has too few free instances ({room.free} of the {room.count_taken(request.instances)} that the pod takes)"


def list_card_faults(card: Card) -> list[str]:
    """What keeps pods from the card besides memory."""
    sick = f"unhealthy ({card.reason})" if card.reason else "unhealthy"
    return [word for word, applies in ((sick, not card.healthy), ("cordoned", card.cordoned)) if applies]


def _evaluate_node(
    counted: NodeWithHolds,
    verdict: ScoredCards | Unfit,
    pod_request: PodRequest,
    policy: TunedPolicy,
    outlook: Outlook,
) -> EvaluatedNode:
    node, request = counted.node, pod_request.card_request
    reason = verdict.reason if isinstance(verdict, Unfit) else None
    cards: tuple[EvaluatedCard, ...] = ()
    if node.total_units and not node.problem:
        cards = tuple(_evaluate_card(node, card, request, counted.holds) for card in node.cards)
    if not isinstance(verdict, ScoredCards):
        return EvaluatedNode(node, reason, cards)
    terms = list_score_terms(policy, node, verdict, request, outlook)
    return EvaluatedNode(node, reason, cards, verdict.cards, verdict.score, terms)


def _add_obstacles(
    evaluated: EvaluatedNode, counted: NodeWithHolds, pod_request: PodRequest, spec: ExaminedPodSpec, resource: str
) -> EvaluatedNode:
    """With what the scheduler checks itself; a node with such an obstacle gets no score."""
    if evaluated.has_no_memory:
        return evaluated
    if exclusions := tuple(list_placement_obstacles(spec, counted.listed.examined)):
        return replace(evaluated, exclusions=exclusions, score=None, terms=())
    shortages = list(list_shortages(read_host_use(spec), counted.listed.allocatable, counted.used, ignored=(resource,)))
    if evaluated.reason is None:
        shortages += [
            Obstacle(f"Insufficient {resource}", each) for each in _find_unoffered_units(counted, pod_request)
        ]
    return replace(evaluated, shortages=tuple(shortages), score=None, terms=()) if shortages else evaluated


def _evaluate_card(node: Node, card: Card, request: CardRequest, holds: Sequence[Hold]) -> EvaluatedCard:
    reason = find_card_obstacle(node, card, request)
    missing = (
        None if reason is not None and reason.is_unresolvable else _count_missing_units(node, card, request, holds)
    )
    pods = tuple(
        HolderView(
            hold.pod.namespace, hold.pod.name, hold.units[card.index], hold.unplaced_reason, hold.state != "held"
        )
        for hold in holds
        if hold.units.get(card.index)
    )
    return EvaluatedCard(card, reason, missing, pods)


def _count_missing_units(node: Node, card: Card, request: CardRequest, holds: Sequence[Hold]) -> int:
    """Units to free on the card: for room and, if a rule or the back end asks for it, of all pods or of some."""
    missing = count_missing_units(card, request)
    ruled = find_card_obstacle(node, replace(card, used_units=0), request)
    if ruled is UnfitReason.NOT_SHAREABLE:
        return card.used_units
    if ruled is UnfitReason.POD_LIMIT:
        return max(missing, _sum_smallest(card, holds, 1))
    if ruled is UnfitReason.INSTANCE_LIMIT and card.instances is not None:
        pods = card.instances.count_taken(request.instances) - card.instances.free  # each frees one or more
        return max(missing, _sum_smallest(card, holds, pods))
    return missing


def _sum_smallest(card: Card, holds: Sequence[Hold], pods: int) -> int:
    """Units of so many pods on the card, those that hold least."""
    return sum(sorted(units for hold in holds if (units := hold.units.get(card.index)))[:pods])


def _find_unoffered_units(counted: NodeWithHolds, pod_request: PodRequest) -> tuple[str, ...]:
    """Why the scheduler's own sum excludes the node: it never asks about one that lacks the resource in `status.allocatable`."""
    facts = counted.listed.facts
    free = count_unasked_units(facts, counted.holds)
    if free is None or free >= pod_request.asked_units:
        return ()
    if (facts.offered_units or 0) < counted.node.total_units:
        offered = f"{facts.offered_units} of its {counted.node.total_units} units"
        return (f"kubelet offers {offered} (is the node's agent registered with it?)",)
    return (f"the scheduler, which adds up what pods ask, counts {max(0, free)} units free",)


def _distance(node: EvaluatedNode, request: CardRequest) -> tuple[int, int, int]:
    """How far the node is from taking the pod: whether it may at all, what kind of step it needs, then how many units."""
    exclusion = node.exclusion_rank
    if node.reason is None:
        return exclusion, (3 if node.shortages else 0), 0
    for step, only_usable in ((1, True), (2, False)):
        if chosen := select_cards_to_free(node, request, only_usable=only_usable):
            return exclusion, (3 if node.shortages else step), count_units_to_free(chosen)
    return exclusion, (5 if node.node.problem else 4), 0
