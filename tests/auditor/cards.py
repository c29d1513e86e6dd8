"""The cards of a node: from the node's own list, or equal shares of `allocatable` where another plugin runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.auditor.raw import Raw, annotations, listing, mapping, metadata, quantity, strict_json, text, whole_number
from tests.auditor.terms import Terms

MOST_CARDS = 4096
"""A node that claims more has a spoiled count; the largest machines hold dozens."""


@dataclass(frozen=True, slots=True)
class AuditedCard:
    """One card; on a legacy node neither uuid nor memory is known."""

    index: int
    units: int
    uuid: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class NodeCards:
    """A node as the audit needs it."""

    name: str
    cards: tuple[AuditedCard, ...] = ()
    legacy: bool = False
    cdi: bool = False
    unit_mib: int | None = None
    observed: Mapping[str, tuple[tuple[str, int], ...]] | None = None
    """Where pods without a readable record were seen: pod uid -> (card uuid, units)."""

    def find_card(self, *, uuid: str | None, index: int | None) -> AuditedCard | None:
        """The card a record names: by uuid, or by index where it gives none."""
        if uuid is not None:
            return next((card for card in self.cards if card.uuid == uuid), None)
        return next((card for card in self.cards if card.index == index), None)


def read_node(node: Raw, terms: Terms) -> NodeCards:
    """The cards of a node. A list that cannot be read counts as missing: the node then has no card that a record could name."""
    name = text(metadata(node).get("name"))
    notes = annotations(node)
    if (published := notes.get(f"{terms.domain}/cards")) is None:
        return NodeCards(name, _equal_cards(node, terms), legacy=True)
    try:
        found = mapping(strict_json(published))
        cards = tuple(_card(mapping(raw)) for raw in listing(found.get("cards")))
    except ValueError:
        return NodeCards(name)
    return NodeCards(
        name,
        cards if len({card.uuid for card in cards}) == len(cards) else (),
        cdi=found.get("devices") == "cdi",
        unit_mib=whole_number(found.get("unit_mib")),
        observed=_observed(notes.get(f"{terms.domain}/observed")),
    )


def _equal_cards(node: Raw, terms: Terms) -> tuple[AuditedCard, ...]:
    allocatable = mapping(mapping(node.get("status")).get("allocatable"))
    try:
        units, count = quantity(allocatable.get(terms.memory)), quantity(allocatable.get(terms.count))
    except ValueError:
        return ()
    return tuple(AuditedCard(index, units // count) for index in range(count)) if units and count <= MOST_CARDS else ()


def _card(raw: Raw) -> AuditedCard:
    index, units = whole_number(raw.get("index")), whole_number(raw.get("units"))
    uuid, memory_mib = text(raw.get("uuid")), whole_number(raw.get("memory_mib"))
    if index is None or units is None or memory_mib is None or not uuid or min(index, units, memory_mib) < 0:
        raise ValueError("not a card")
    return AuditedCard(index, units, uuid, memory_mib)


def _observed(source: str | None) -> Mapping[str, tuple[tuple[str, int], ...]]:
    try:
        pods = mapping(mapping(strict_json(source or "{}")).get("pods"))
    except ValueError:
        return {}
    return {
        uid: tuple(
            (text(seen.get("uuid")), whole_number(seen.get("units")) or 0) for seen in map(mapping, listing(cards))
        )
        for uid, cards in pods.items()
    }
