"""What filter must answer, the slow way: from raw objects and the text of the rules, following docs/, and with no ledger.

Every question counts each card again: what the records of its pods say, what Bindings under way would write, and what is kept
for nominated pods. Only what depends on a single object is remembered, by the object's version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from tests.support.ruled_clusters import matches
from tests.wire.oracle import count_held_units
from tests.wire.oracle_annotations import KNOWN_INJECTIONS, OracleCard, agent_of, cards_of, injection_of
from tests.wire.oracle_asks import Object, OracleRequest, is_large_enough, keep_paid, oracle_request, pays_for

UNPAID = "whole card asks for too little"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PendingPlace:
    """A Binding that was sent and not heard of again: the pod, and where it would be."""

    pod: Object
    node: str
    record: Mapping[str, str]
    """The annotations of the Binding."""


@dataclass(slots=True)
class HeardCluster:
    """All that the extender has heard and done when it is asked."""

    nodes: Mapping[str, Object]
    pods: Sequence[Object]
    places: Sequence[PendingPlace]
    rules: Object
    namespaces: Mapping[str, Object]
    """Labels by namespace."""


@dataclass(slots=True)
class JudgedCard:
    """One card with what is on it."""

    index: int
    uuid: str | None
    units: int
    model: str
    is_usable: bool
    reserve: int | None
    gpu: str
    instances: int | None
    used: int = 0
    pods: int = 0
    tenants: set[str] = field(default_factory=set)
    limits: int = 0
    """Instances of its GPU that pods take."""

    @property
    def free(self) -> int:
        return max(0, self.units - self.used)

    def hold(self, units: int, tenant: str | None) -> None:
        self.used += units
        if units:
            self.pods += 1
            if tenant is not None:
                self.tenants.add(tenant)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the node will not do, or the cards that would."""

    reason: str = ""
    is_never: bool = False
    cards: tuple[int, ...] = ()
    """The tightest ones, which are kept where the pod is nominated."""
    fitting: Mapping[int, int] = field(default_factory=dict)
    """Units of those that would do, by index."""
    most_units: int | None = None
    """The most that the chosen ones may have together; None: any."""

    def allows(self, cards: Collection[int]) -> bool:
        """Whether the pod may go to exactly these cards."""
        if self.reason or len(cards) != len(self.cards) or any(index not in self.fitting for index in cards):
            return False
        return self.most_units is None or sum(self.fitting[index] for index in cards) <= self.most_units


class Judge:
    """Remembers readings of single objects."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Any] = {}  # Any: one kind of value for each kind of key

    def judge_pod(self, heard: HeardCluster, pod: Object, names: Iterable[str]) -> dict[str, Verdict]:
        """The verdict on each of these nodes. The pod must ask for cards."""
        reserves = self._assign_reserves(heard)
        holders = _group_holders(heard)
        return {name: self._judge_node(heard, pod, name, reserves, holders[name]) for name in names}

    def count_used(self, node: Object, pods: Iterable[Object]) -> list[OracleCard]:
        """The cards of a node with what these bound pods hold there."""
        cards = self._read_cards(node)
        used: defaultdict[int, int] = defaultdict(int)
        for pod in pods:
            for index, units in self._read_held(pod, node).items():
                used[index] += units
        return [OracleCard(card.index, card.uuid, card.units, used=used[card.index]) for card in cards]

    def _judge_node(
        self,
        heard: HeardCluster,
        pod: Object,
        name: str,
        reserves: Mapping[tuple[str, int], int],
        holders: Sequence[tuple[Object, bool]],
    ) -> Verdict:
        node = heard.nodes.get(name)
        if node is None:
            return Verdict("node not seen yet")
        uid, priority = pod["metadata"]["uid"], _read_priority(pod)
        cards = self._fill_cards(
            heard, node, reserves, [each for each, is_pending in holders if not (is_pending and _uid(each) == uid)]
        )
        for nominee, indices, units in self._list_kept(heard, name, reserves, holders):
            if _uid(nominee) != uid and _read_priority(nominee) >= priority:
                self._keep_cards(heard, node, cards, nominee, indices, units)
        return self._judge_cards(heard, pod, node, cards)

    def _list_kept(
        self,
        heard: HeardCluster,
        name: str,
        reserves: Mapping[tuple[str, int], int],
        holders: Sequence[tuple[Object, bool]],
    ) -> list[tuple[Object, tuple[int, ...], int]]:
        """Of each nominee that will find cards, the most important first: it, its cards, its units (0: the whole card)."""
        pending = {_uid(each) for each, is_pending in holders if is_pending}
        nominees = [pod for pod in heard.pods if _is_nominated(pod, name) and _uid(pod) not in pending]
        if not nominees:
            return []
        staying = [each for each, _ in holders if "deletionTimestamp" not in each["metadata"]]
        cards = self._fill_cards(heard, heard.nodes[name], reserves, staying)
        kept = []
        order: Callable[[Object], Any] = lambda pod: (  # noqa: E731
            -_read_priority(pod),
            pod["metadata"]["creationTimestamp"],
            _uid(pod),
        )
        for nominee in sorted(nominees, key=order):
            request = self._read_request(nominee)
            verdict = self._judge_cards(heard, nominee, heard.nodes[name], cards)
            if request is None or verdict.reason:
                continue
            units = 0 if request.whole else request.units
            kept.append((nominee, verdict.cards, units))
            self._keep_cards(heard, heard.nodes[name], cards, nominee, verdict.cards, units)
        return kept

    def _keep_cards(
        self,
        heard: HeardCluster,
        node: Object,
        cards: Sequence[JudgedCard],
        nominee: Object,
        indices: Collection[int],
        units: int,
    ) -> None:
        self._hold_cards(
            heard, node, cards, nominee, {card.index: units or card.units for card in cards if card.index in indices}
        )

    def _hold_cards(
        self, heard: HeardCluster, node: Object, cards: Sequence[JudgedCard], pod: Object, held: Mapping[int, int]
    ) -> None:
        """A pod takes instances of each GPU once, on however many of its MIG instances it is."""
        tenant, request = _find_tenant(heard.rules, pod), self._read_request(pod)
        taken = request.instances if request is not None and self._read_agent(node)[1] else 1
        gpus = {card.gpu for card in cards if held.get(card.index)}
        for card in cards:
            if card.index in held:
                card.hold(held[card.index], tenant)
            if card.gpu in gpus:
                card.limits += taken

    def _fill_cards(
        self,
        heard: HeardCluster,
        node: Object,
        reserves: Mapping[tuple[str, int], int],
        holders: Iterable[Object],
    ) -> list[JudgedCard]:
        name = node["metadata"]["name"]
        cards = {
            card.index: JudgedCard(
                card.index,
                card.uuid,
                card.units,
                card.model,
                card.is_usable,
                reserves.get((name, card.index)),
                card.gpu or str(card.index),
                card.instances,
            )
            for card in self._read_cards(node)
        }
        for pod in holders:
            self._hold_cards(heard, node, [*cards.values()], pod, self._read_held(pod, node))
        return [*cards.values()]

    def _judge_cards(self, heard: HeardCluster, pod: Object, node: Object, cards: Sequence[JudgedCard]) -> Verdict:
        """The first text that applies, in the order of docs/reasons.md."""
        request = self._read_request(pod)
        if request is None:
            raise ValueError("the pod asks for nothing")
        injection, count, units = self._read_injection(node), request.count, request.units
        if not any(card.units for card in cards):
            return Verdict("no shareable GPU memory", is_never=True)
        if injection not in KNOWN_INJECTIONS:
            return Verdict("injection mode not known", is_never=True)
        serves, has_hook = self._read_agent(node)
        if not request.words <= serves:
            return Verdict("agent too old for this request", is_never=True)
        needed = request.instances if has_hook else 1
        is_paid = request.whole and request.is_valid and heard.rules.get("whole_cards") != "as-requested"
        left = [card for card in cards if is_large_enough(request, card.units, is_paid=is_paid)]
        if not left:
            return Verdict("larger than any card", is_never=True)
        stages: list[tuple[str, bool, Callable[[JudgedCard], bool]]] = [
            ("too few cards", True, lambda _: True),
            ("card model not allowed", True, lambda card: not request.models or card.model in request.models),
            ("card uuid not here", True, lambda card: not request.uuids or card.uuid in request.uuids),
            ("request not valid", True, lambda _: request.is_valid),
            *_list_ruled_stages(heard, pod, request),
            ("created before the admission policy", True, lambda _: request.is_wired or injection != "exact"),
            (UNPAID, True, lambda _: True),
            (
                _name_lack_of_room(request),
                False,
                lambda card: card.used == 0 if request.whole else card.free >= units,
            ),
            *_list_sharing_stages(heard, pod),
            (
                "card has as many containers as its node can limit",
                False,
                lambda card: card.instances is None or card.instances - card.limits >= needed,
            ),
            ("card unhealthy or cordoned", False, lambda card: card.is_usable),
        ]
        must_pay = False
        for text, is_never, passes in stages:
            left = [card for card in left if passes(card)]
            must_pay |= is_paid and text == UNPAID
            if len(left) < count or (must_pay and not pays_for(request, [card.units for card in left])):
                return Verdict(text, is_never=is_never)
        if is_paid:
            left = keep_paid(request, left, lambda card: (card.units, card.model))
        tightest = sorted(left, key=lambda card: (card.free, card.model, card.units, card.index))[:count]
        return Verdict(
            cards=tuple(card.index for card in tightest),
            fitting={card.index: card.units for card in left},
            most_units=request.asked if is_paid else None,
        )

    def _assign_reserves(self, heard: HeardCluster) -> dict[tuple[str, int], int]:
        """The first usable cards of the model, by node name and index, for one reserve after the other."""
        entries = heard.rules.get("reserve", ())
        if not entries:
            return {}
        usable: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for name, node in sorted(heard.nodes.items()):
            if self._read_injection(node) in KNOWN_INJECTIONS:
                for card in sorted(self._read_cards(node), key=lambda card: card.index):
                    if card.units and card.is_usable:
                        usable[card.model].append((name, card.index))
        free = {model: iter(cards) for model, cards in usable.items()}
        return {
            place: number
            for number, entry in enumerate(entries)
            for place in islice(free.get(entry["model"], iter(())), entry["cards"])
        }

    def _read_cards(self, node: Object) -> list[OracleCard]:
        return self._remember(("cards", *_identify(node)), lambda: cards_of(node))

    def _read_injection(self, node: Object) -> str:
        return self._remember(("injection", *_identify(node)), lambda: injection_of(node))

    def _read_agent(self, node: Object) -> tuple[set[str], bool]:
        return self._remember(("agent", *_identify(node)), lambda: agent_of(node))

    def _read_held(self, pod: Object, node: Object) -> dict[int, int]:
        def read() -> dict[int, int]:
            return count_held_units(pod, node, self._read_cards(node))

        if "pending" in pod:
            return read()
        return self._remember(("held", *_identify(pod), *_identify(node)), read)

    def _read_request(self, pod: Object) -> OracleRequest | None:
        return self._remember(("request", *_identify(pod)), lambda: oracle_request(pod))

    def _remember(self, key: tuple[Any, ...], read: Callable[[], _T]) -> _T:
        if key not in self._kept:
            self._kept[key] = read()
        found: _T = self._kept[key]
        return found


def _list_ruled_stages(
    heard: HeardCluster, pod: Object, request: OracleRequest
) -> list[tuple[str, bool, Callable[[JudgedCard], bool]]]:
    named = {"metadata": {**pod["metadata"], "namespaceLabels": heard.namespaces.get(pod["metadata"]["namespace"], {})}}
    permits = [entry["allow"] for entry in heard.rules.get("models", ()) if matches(entry["users"], named)]
    mine = {
        number
        for number, entry in enumerate(heard.rules.get("reserve", ()))
        if (request.whole or request.units >= entry.get("min_units", 0)) and matches(entry["users"], named)
    }
    return [
        ("card model not allowed by a rule", True, lambda card: not permits or card.model in permits[0]),
        ("card reserved by a rule", True, lambda card: card.reserve is None or card.reserve in mine),
    ]


def _list_sharing_stages(heard: HeardCluster, pod: Object) -> list[tuple[str, bool, Callable[[JudgedCard], bool]]]:
    tenant, most = _find_tenant(heard.rules, pod), heard.rules.get("max_pods_per_card")
    return [
        (
            "card may not be shared with its pods",
            False,
            lambda card: tenant is None or all(tenant and each == tenant for each in card.tenants),
        ),
        ("card has as many pods as a rule allows", False, lambda card: most is None or card.pods < most),
    ]


def _name_lack_of_room(request: OracleRequest) -> str:
    if request.whole:
        return "no empty card"
    return "no card with enough free memory" if request.count == 1 else "not enough cards with free memory"


def _find_tenant(rules: Object, pod: Object) -> str | None:
    """With whom the pod shares cards; empty: with nobody. None: with anybody."""
    metadata = pod["metadata"]
    if rules["share_with"] == "same-namespace":
        return f"namespace {metadata['namespace']}"
    if rules["share_with"] == "same-label:team":
        team = (metadata.get("labels") or {}).get("team")
        return "" if team is None else f"team {team}"
    return None


def _group_holders(heard: HeardCluster) -> defaultdict[str, list[tuple[Object, bool]]]:
    """By node: the pods that hold something there, and whether only a Binding on its way says so."""
    holders: defaultdict[str, list[tuple[Object, bool]]] = defaultdict(list)
    for pod in heard.pods:
        if (name := pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") not in (
            "Succeeded",
            "Failed",
        ):
            holders[name].append((pod, False))
    for place in heard.places:
        notes = {**(place.pod["metadata"].get("annotations") or {}), **place.record}
        metadata = {**place.pod["metadata"], "annotations": notes}
        holders[place.node].append(({**place.pod, "metadata": metadata, "pending": True}, True))
    return holders


def _is_nominated(pod: Object, name: str) -> bool:
    return (
        (pod.get("status") or {}).get("nominatedNodeName") == name
        and not pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    )


def _read_priority(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _identify(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("uid") or metadata["name"], metadata.get("resourceVersion", "")
