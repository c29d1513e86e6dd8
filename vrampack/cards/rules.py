"""The cluster's rules: which pods may share a card, and which cards they may use. They hold whatever a policy prefers.

What a rule must know about a pod is in its `CardRequest`, what it must know about a card in the `Card`:
`vrampack.cards.fit` compares the two. A changed rule never affects a running pod.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Literal

from vrampack.cards.node import NodeFacts, find_node_problem
from vrampack.cards.payment import compute_payment
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest, RequestRules

Sharing = Literal["anybody", "same-namespace", "same-label"]
LONER = b""
"""The tenant of a pod that shares a card with no other pod, because it lacks the label by which pods share."""
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods by namespace and labels; an empty part matches all."""

    namespaces: tuple[str, ...] = ()
    """Names, or patterns with `*`."""
    labels: tuple[tuple[str, str], ...] = ()
    """All of them."""
    namespace_labels: tuple[tuple[str, str], ...] = ()
    """Labels of its namespace, all of which must match."""

    def matches_pod(self, pod: Pod) -> bool:
        return (
            (not self.namespaces or any(fnmatchcase(pod.namespace, pattern) for pattern in self.namespaces))
            and set(self.labels) <= set(pod.rule_labels)
            and set(self.namespace_labels) <= set(pod.namespace_labels)
        )


@dataclass(frozen=True, slots=True)
class CardReserve:
    """Cards of a model that are kept for some requests."""

    model: str
    cards: int
    users: PodSelector
    min_units: int = 0
    """The least units per card that a request must ask for; a request for whole cards always qualifies."""

    def admits_pod(self, pod: Pod, request: CardRequest) -> bool:
        return (request.whole or request.units >= self.min_units) and self.users.matches_pod(pod)


@dataclass(frozen=True, slots=True)
class ModelPermit:
    """The only models that these pods may use."""

    users: PodSelector
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """All rules. If there are none, nothing is counted for them and no request carries them."""

    max_pods_per_card: int | None = None
    share_with: Sharing = "anybody"
    label_key: str = ""
    """The label key of `same-label`."""
    reserves: tuple[CardReserve, ...] = ()
    permits: tuple[ModelPermit, ...] = ()
    whole_cards_are_paid: bool = False
    """Whether a request for whole cards must ask for all of their units. It concerns such requests alone."""

    @property
    def has_any(self) -> bool:
        """Whether a rule concerns requests of every kind."""
        return self.counts_pods or bool(self.reserves or self.permits)

    @property
    def counts_pods(self) -> bool:
        """Whether a card must know which pods are on it."""
        return self.max_pods_per_card is not None or self.share_with != "anybody"

    def list_label_keys(self) -> frozenset[str]:
        """The keys of pod labels that decide anything."""
        keys = {key for selector in self.list_selectors() for key, _ in selector.labels}
        return frozenset(keys | ({self.label_key} if self.share_with == "same-label" else set()))

    def list_selectors(self) -> list[PodSelector]:
        return [reserve.users for reserve in self.reserves] + [permit.users for permit in self.permits]

    def find_tenant(self, pod: Pod) -> bytes | None:
        """The digest of the tenant whose pods may share cards with it; None: any pod may."""
        if self.share_with == "anybody":
            return None
        if self.share_with == "same-namespace":
            return hash_tenancy(pod.namespace)
        value = dict(pod.rule_labels).get(self.label_key)
        return LONER if value is None else hash_tenancy(value)

    def constrain_request(self, pod: Pod, pod_request: PodRequest) -> PodRequest:
        """The pod's request under these rules, which replace those that it was read under."""
        request = pod_request.card_request
        rules = self._build_request_rules(pod, request) if self.has_any else None
        is_paid = request.whole and request.is_valid and self.whole_cards_are_paid
        payment = compute_payment(pod_request.asked_units, request.count) if is_paid else None
        if (request.rules, request.payment) == (rules, payment):
            return pod_request
        return replace(pod_request, card_request=replace(request, rules=rules, payment=payment))

    def _build_request_rules(self, pod: Pod, request: CardRequest) -> RequestRules:
        return RequestRules(
            self.find_tenant(pod),
            frozenset(at for at, reserve in enumerate(self.reserves) if reserve.admits_pod(pod, request)),
            next((permit.models for permit in self.permits if permit.users.matches_pod(pod)), None),
        )


NO_RULES = PlacementRules()


def build_new_tenant_request(request: CardRequest) -> CardRequest | None:
    """The same request for a tenant without pods; None if no rule asks for tenants, or the request has none."""
    if request.rules is None or not request.rules.tenant:
        return None
    return replace(request, rules=request.rules._replace(tenant=LONER))


@lru_cache(maxsize=4096)
def hash_tenancy(text: str) -> bytes:
    """A digest of fixed size, so that no text of a pod is stored."""
    return sha256(text.encode(), usedforsecurity=False).digest()[:DIGEST_BYTES]


class ReservedCardIndex:
    """Which cards belong to which reserve: the first usable ones of the model, by node name and index."""

    def __init__(self, reserves: Iterable[CardReserve], *, unit_mib: int) -> None:
        self._unit_mib = unit_mib
        self._wanted: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """By model: the reserves in the order of the rules, each as its number and how many cards it wants."""
        for at, reserve in enumerate(reserves):
            self._wanted[reserve.model].append((at, reserve.cards))
        self._candidates: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        """By model: node and index of every usable card, sorted by both."""
        self._usable: dict[tuple[str, str], list[int]] = {}
        """The same by model and node."""
        self._reserved: dict[str, dict[str, dict[int, int]]] = {}
        """By model and node: the reserve of each card."""

    def list_reserves(self, name: str) -> dict[int, int]:
        """The reserve of each card of the node that has one, by card index."""
        return {index: at for by_node in self._reserved.values() for index, at in by_node.get(name, {}).items()}

    def put_node(self, name: str, facts: NodeFacts | None) -> set[str]:
        """Replace or, with None, remove a node. Returns the nodes whose reserved cards changed with it."""
        changed: set[str] = set()
        for model in self._wanted:
            cards = [] if facts is None else self._list_usable_cards(facts, model)
            known = self._usable.pop((model, name), [])
            if cards:
                self._usable[model, name] = cards
            if known != cards:
                candidates = self._candidates[model]
                for index in known:
                    del candidates[bisect_left(candidates, (name, index))]
                for index in cards:
                    insort(candidates, (name, index))
                changed |= self._reassign(model)
        return changed

    def _list_usable_cards(self, facts: NodeFacts, model: str) -> list[int]:
        if facts.injection is None or find_node_problem(facts, unit_mib=self._unit_mib):
            return []
        return sorted(
            card.index
            for card in facts.cards
            if card.model == model and card.units and card.healthy and card.uuid not in facts.cordoned
        )

    def _reassign(self, model: str) -> set[str]:
        candidates = iter(self._candidates[model])
        reserved: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for at, count in self._wanted[model]:
            for name, index in islice(candidates, count):
                reserved[name][index] = at
        before = self._reserved.get(model, {})
        self._reserved[model] = dict(reserved)
        return {name for name in before.keys() | reserved.keys() if before.get(name) != reserved.get(name)}


def assign_reserved_cards(
    nodes: Iterable[NodeFacts], reserves: Iterable[CardReserve], *, unit_mib: int
) -> Mapping[str, Mapping[int, int]]:
    """The reserve of each card of a whole cluster that has one, by node and card index."""
    index = ReservedCardIndex(reserves, unit_mib=unit_mib)
    names = [facts.name for facts in nodes if index.put_node(facts.name, facts) is not None]
    return {name: reserved for name in names if (reserved := index.list_reserves(name))}
