"""Changes a cluster's nodes for what-if questions: adds nodes, removes nodes, and gives nodes other cards.

Nodes are added first, then cards exchanged, then nodes removed, so that copies can have other cards and replace the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from vrampack.cards import well_known
from vrampack.cards.node import CardFacts, NodeFacts
from vrampack.cards.node_annotations import read_node, write_cards
from vrampack.simulator.resource_kinds import Object

HOSTNAME = "kubernetes.io/hostname"
MAX_COPIES = 10_000


class NodeChangeError(ValueError):
    """A change that cannot be made; the message names the flag and the fix."""


@dataclass(frozen=True, slots=True)
class NodeAddition:
    """A number of empty copies of a node, named `NODE-copy-1` and so on."""

    node_name: str
    count: int


@dataclass(frozen=True, slots=True)
class CardExchange:
    """Gives every card of the nodes with this name or pattern this model and size."""

    pattern: str
    model: str
    units: int


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """The changes for `change_nodes`."""

    additions: Sequence[NodeAddition] = ()
    exchanges: Sequence[CardExchange] = ()
    removals: Sequence[str] = ()
    """Names or patterns."""


@dataclass(frozen=True, slots=True)
class ChangedNodes:
    nodes: tuple[Object, ...]
    exchanged: frozenset[str]
    """Names of the nodes that have other cards."""


def change_nodes(nodes: Iterable[Object], changes: NodeChanges, *, unit_mib: int, resource: str) -> ChangedNodes:
    """The nodes after these changes. Raises `NodeChangeError`."""
    known = {node["metadata"]["name"]: node for node in nodes}
    for addition in changes.additions:
        if addition.node_name not in known:
            raise NodeChangeError(f"--add-nodes: there is no node {addition.node_name}; {_list_names(known)}")
        for number in range(1, addition.count + 1):
            copy = _copy_node(known[addition.node_name], number)
            known[copy["metadata"]["name"]] = copy
    exchanged = set[str]()
    for exchange in changes.exchanges:
        for name in _match_names("--model", exchange.pattern, known):
            known[name] = _exchange_cards(known[name], exchange, unit_mib, resource)
            exchanged.add(name)
    for pattern in changes.removals:
        for name in _match_names("--remove-nodes", pattern, known):
            del known[name]
    return ChangedNodes(tuple(known.values()), frozenset(exchanged))


def _match_names(flag: str, pattern: str, known: Mapping[str, Object]) -> list[str]:
    names = [name for name in known if fnmatchcase(name, pattern)]
    if not names:
        raise NodeChangeError(f"{flag}: no node is called {pattern}; {_list_names(known)}")
    return names


def _list_names(known: Mapping[str, Object]) -> str:
    shown = sorted(known)[:10]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"the snapshot has {', '.join(shown)}{more}" if shown else "the snapshot has no nodes"


def _copy_node(node: Object, number: int) -> Object:
    metadata = node["metadata"]
    name = f"{metadata['name']}-copy-{number}"
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(well_known.NODE_OBSERVED, None)
    annotations.pop(well_known.CORDONED_CARDS, None)
    if well_known.NODE_CARDS in annotations:
        facts = _read_facts(node, "--add-nodes")
        cards = [replace(card, uuid=f"{card.uuid}-copy-{number}") for card in facts.cards]
        annotations[well_known.NODE_CARDS] = _write_cards(facts, cards)
    labels = dict(metadata.get("labels") or {})
    if HOSTNAME in labels:
        labels[HOSTNAME] = name
    return {**node, "metadata": {**metadata, "name": name, "annotations": annotations, "labels": labels}}


def _exchange_cards(node: Object, exchange: CardExchange, unit_mib: int, resource: str) -> Object:
    facts = _read_facts(node, "--model")
    unit = facts.unit_mib or unit_mib
    cards = [
        replace(card, model=exchange.model, units=exchange.units, memory_mib=exchange.units * unit)
        for card in facts.cards
    ]
    metadata, status = node["metadata"], node.get("status") or {}
    annotations = {**(metadata.get("annotations") or {}), well_known.NODE_CARDS: _write_cards(facts, cards)}
    offered = {resource: str(sum(card.units for card in cards if card.healthy))}
    amounts = {half: {**(status.get(half) or {}), **offered} for half in ("capacity", "allocatable")}
    return {**node, "metadata": {**metadata, "annotations": annotations}, "status": {**status, **amounts}}


def _read_facts(node: Object, flag: str) -> NodeFacts:
    name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    facts = read_node(name, annotations, {}, unit_mib=1).facts
    if well_known.NODE_CARDS not in annotations or not facts.cards:
        why = facts.problem or f'it has no annotation "{well_known.NODE_CARDS}"'
        raise NodeChangeError(f"{flag}: the cards of node {name} are not known: {why}; name other nodes")
    return facts


def _write_cards(facts: NodeFacts, cards: Iterable[CardFacts]) -> str:
    return write_cards(
        cards,
        unit_mib=facts.unit_mib or 0,
        injection=facts.injection or "exact",
        devices=facts.devices,
        serves=facts.serves,
        has_hook=facts.has_hook,
    )
