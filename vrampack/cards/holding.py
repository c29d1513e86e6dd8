"""What pods hold on a node's cards: one definition for the ledger and for everything that shows it.

A bound pod holds what its record says. If the record is missing or unreadable, or names a card that its node no longer has,
the pod counts on every card of the node until the node's agent says where it is, so no other pod is placed on top of it.

A share is a part of the card's memory. If the card is counted in other units by now, its share is too: `count_share_units`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from vrampack.cards.amounts import Amounts, add_amounts, find_largest
from vrampack.cards.node import Card, CardFacts, CardInstances, Node, NodeFacts, Share, build_node
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, UnreadableRecord
from vrampack.cards.request import CardRequest
from vrampack.cards.rules import NO_RULES, PlacementRules
from vrampack.cards.units import find_card_units, scale_units

HoldState = Literal["held", "reserved", "unconfirmed", "bound", "terminating"]
"""`held`: a place for a pod that may be bound late, of which no Binding was sent yet."""
CardsByName: TypeAlias = dict[str | int | None, CardFacts]
NO_RESERVES: Mapping[int, int] = {}
_Held: TypeAlias = tuple[Mapping[int, int], Mapping[int, Amounts]]
"""Units and what is held besides them, by card index."""
TakenInstances: TypeAlias = Mapping[str | None, Sequence[int]]
"""What the pods on a GPU take where containers have instances of their own, by the GPU's uuid."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod holds on one node."""

    pod: Pod
    state: HoldState
    units: Mapping[int, int]
    """Units by card index."""
    amounts: Mapping[int, Amounts] = field(default_factory=dict)
    """What it holds besides memory, by index of the cards of which it holds any."""
    unplaced_reason: str = ""
    """Why it counts on every card of the node; empty when its cards are known."""


def count_share_units(share: Share, card: CardFacts) -> int:
    """How many of the card's units, as it is counted now, the share holds. Everything that counts held units asks this.

    Rounded up, so that shares that fit by this count fit into the card's memory.
    """
    if share.whole:
        return card.units
    card_units = share.card_units
    if card_units is None and share.limit is not None:
        card_units = find_card_units(card.memory_mib, *share.limit, likely_units=card.units)
    if card_units is None or card_units == card.units:
        return share.units
    return scale_units(share.units, card_units, card.units)


def index_cards(facts: NodeFacts) -> CardsByName:
    """The cards by the names that shares use: uuid, or index. A legacy node has no uuids."""
    cards: CardsByName = {card.index: card for card in facts.cards}
    if not facts.legacy:
        cards.update((card.uuid, card) for card in facts.cards)
    return cards


def build_bound_hold(pod: Pod, facts: NodeFacts, cards: CardsByName) -> Hold:
    """What a bound pod holds: by its record, else by what the node's agent observed, else everywhere.

    `cards` is `index_cards(facts)`, built once for all pods of the node.
    """
    state: HoldState = "terminating" if pod.is_terminating else "bound"
    shares = pod.record.shares if isinstance(pod.record, Record) else ()
    held = _resolve(shares, facts, cards) if shares else None
    if held is None and facts.observed is not None and pod.uid in facts.observed:
        held = _resolve(facts.observed[pod.uid], facts, cards)
    if held is not None:
        return Hold(pod, state, *held)
    return Hold(pod, state, *_count_on_every_card(pod, shares, facts), _explain_unplaced(pod.record))


def list_holds(facts: NodeFacts, pods: Iterable[Pod]) -> list[Hold]:
    """What these bound pods hold on their node, in display order."""
    cards = index_cards(facts)
    return sorted((build_bound_hold(pod, facts, cards) for pod in pods), key=get_display_order)


def get_display_order(hold: Hold) -> tuple[str, str, str]:
    return hold.pod.namespace, hold.pod.name, hold.pod.uid


def build_reserved_hold(
    pod: Pod, shares: tuple[Share, ...], facts: NodeFacts, cards: CardsByName, state: HoldState
) -> Hold:
    """What is reserved for a pod whose Binding has not been seen yet."""
    held = _resolve(shares, facts, cards)
    if held is not None:
        return Hold(pod, state, *held)
    return Hold(pod, state, *_count_on_every_card(pod, shares, facts), "its card is gone")


def build_placed_hold(pod: Pod, request: CardRequest, cards: Iterable[Card]) -> Hold:
    """What the pod would hold if it were placed on these cards."""
    cards = list(cards)
    return Hold(
        pod,
        "reserved",
        {card.index: request.get_taken_units(card.units) for card in cards},
        {card.index: request.amounts for card in cards},
    )


def build_node_from_holds(
    facts: NodeFacts,
    holds: Iterable[Hold],
    *,
    unit_mib: int,
    rules: PlacementRules = NO_RULES,
    reserves: Mapping[int, int] = NO_RESERVES,
    known_cards: Sequence[Card] = (),
) -> Node:
    """The node with everything that is held on it. `reserves` is the reserve of each card that has one, by card index.

    `known_cards` are cards built earlier from the same facts: if no rules are in force, a card that counts no instances and
    that holds as much as then stays the same object.
    """
    holds = list(holds)
    used, taken = _sum_units(holds), _sum_amounts(holds)
    are_ruled = rules.counts_pods or bool(reserves)
    instances = _list_taken_instances(
        {card.index: card.gpu for card in facts.cards if card.instances is not None}, holds
    )

    if known_cards and not are_ruled:
        cards = tuple(
            [
                known
                if known.used_units == used[card.index]
                and known.taken == taken.get(card.index, ())
                and known.instances is None
                else _build_card(card, facts, used[card.index], taken.get(card.index, ()), instances)
                for card, known in zip(facts.cards, known_cards, strict=True)
            ]
        )
    else:
        cards = tuple(
            [_build_card(card, facts, used[card.index], taken.get(card.index, ()), instances) for card in facts.cards]
        )
    if are_ruled:
        cards = apply_rules_to_cards(cards, holds, rules=rules, reserves=reserves)
    return build_node(facts, cards, unit_mib=unit_mib)


def refill_node(node: Node, holds: Iterable[Hold], *, rules: PlacementRules) -> Node:
    """The node as it would be with these holds and no others."""
    holds = list(holds)
    used, taken = _sum_units(holds), _sum_amounts(holds)
    instances = _list_taken_instances(
        {card.index: card.instances.gpu for card in node.cards if card.instances is not None}, holds
    )
    cards = apply_rules_to_cards(
        [
            replace(
                card,
                used_units=used[card.index],
                taken=taken.get(card.index, ()),
                instances=None
                if card.instances is None
                else card.instances.take_instances(instances.get(card.instances.gpu, ())),
            )
            for card in node.cards
        ],
        holds,
        rules=rules,
        reserves={card.index: card.reserve for card in node.cards if card.reserve is not None},
    )
    return replace(node, cards=cards)


def apply_rules_to_cards(
    cards: Iterable[Card], holds: Iterable[Hold], *, rules: PlacementRules, reserves: Mapping[int, int] = NO_RESERVES
) -> tuple[Card, ...]:
    """The cards, with what rules need to know about them, given the pods on them."""
    pods: defaultdict[int, int] = defaultdict(int)
    tenants: defaultdict[int, set[bytes]] = defaultdict(set)
    if rules.counts_pods:
        for hold in holds:
            tenant = rules.find_tenant(hold.pod)
            for index in [index for index, units in hold.units.items() if units]:
                pods[index] += 1
                if tenant is not None:
                    tenants[index].add(tenant)
    most = rules.max_pods_per_card
    return tuple(
        replace(
            card,
            free_pods=None if most is None else max(0, most - pods[card.index]),
            tenants=frozenset(tenants[card.index]),
            reserve=reserves.get(card.index),
        )
        for card in cards
    )


def _sum_units(holds: Iterable[Hold]) -> Mapping[int, int]:
    """Held units by card index; a card of which nothing is held has 0."""
    used: defaultdict[int, int] = defaultdict(int)
    for hold in holds:
        for index, units in hold.units.items():
            used[index] += units
    return used


def _sum_amounts(holds: Iterable[Hold]) -> Mapping[int, Amounts]:
    """What is held besides memory, by index of the cards of which anything is."""
    terms: defaultdict[int, list[Amounts]] = defaultdict(list)
    for hold in [each for each in holds if each.amounts]:
        for index, amounts in hold.amounts.items():
            terms[index].append(amounts)
    return {index: add_amounts(each) for index, each in terms.items()}


def _list_taken_instances(gpu_by_index: Mapping[int, str | None], holds: Iterable[Hold]) -> TakenInstances:
    """A pod takes those of a GPU once, on however many of its MIG instances it is."""
    taken: defaultdict[str | None, list[int]] = defaultdict(list)
    for hold in holds if gpu_by_index else ():
        request = hold.pod.request
        instances = 1 if request is None else request.card_request.instances
        for gpu in {gpu_by_index[index] for index, units in hold.units.items() if units and index in gpu_by_index}:
            taken[gpu].append(instances)
    return taken


def _build_card(card: CardFacts, facts: NodeFacts, used_units: int, taken: Amounts, instances: TakenInstances) -> Card:
    return Card(
        index=card.index,
        units=card.units,
        memory_mib=card.memory_mib,
        uuid=card.uuid,
        model=card.model,
        healthy=card.healthy,
        cordoned=card.uuid in facts.cordoned,
        used_units=used_units,
        numa=card.numa,
        reason=card.reason,
        instances=None
        if card.instances is None
        else CardInstances(card.gpu, card.instances, are_per_container=facts.has_hook).take_instances(
            instances.get(card.gpu, ())
        ),
        offered=card.offered,
        taken=taken,
    )


def _resolve(shares: Iterable[Share], facts: NodeFacts, cards: CardsByName) -> _Held | None:
    """What the shares are, or None when one names a card that the node does not have."""
    units: dict[int, int] = {}
    amounts: dict[int, Amounts] = {}
    for share in shares:
        card = cards.get(share.index if facts.legacy or share.uuid is None else share.uuid)
        if card is None:
            return None
        units[card.index] = units.get(card.index, 0) + count_share_units(share, card)
        if share.amounts:
            amounts[card.index] = add_amounts((amounts.get(card.index, ()), share.amounts))
    return units, amounts


def _count_on_every_card(pod: Pod, shares: Sequence[Share], facts: NodeFacts) -> _Held:
    """What the pod holds on every card, so that no other pod is placed on top of it, wherever it is."""
    request = None if pod.request is None else pod.request.card_request
    if request is not None and request.whole:
        return {card.index: card.units for card in facts.cards}, {}
    units = max([0 if request is None else request.units, *(share.units for share in shares)])
    amounts = find_largest([() if request is None else request.amounts, *(share.amounts for share in shares)])
    known = [share for share in shares if share.card_units is not None]  # a limit says nothing about another card
    return (
        {card.index: max([units, *(count_share_units(share, card) for share in known)]) for card in facts.cards},
        {card.index: amounts for card in facts.cards} if amounts else {},
    )


def _explain_unplaced(record: Record | UnreadableRecord | None) -> str:
    if record is None:
        return "it has no record and counts on every card of its node; delete it, or let the node's agent observe it"
    if isinstance(record, UnreadableRecord):
        return f'annotation "{record.key}": {record.problem}; the pod counts on every card of its node'
    return "its record names a card the node does not have; the pod counts on every card of its node"
