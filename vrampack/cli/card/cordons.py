"""Which cards of a node are cordoned, and the patch that cordons or uncordons a card. Pure.

Only operators write the annotation `vrampack.dev/cordoned-cards`, never the agent, so a cordon outlives agents, drivers
and the card itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.node import CardFacts
from vrampack.cli.errors import MissingObjectError
from vrampack.kube.objects import NodeObject

MAX_INDEX_DIGITS = 4
"""A longer number is taken for the beginning of a uuid."""


class UnknownCardError(MissingObjectError):
    """The name matches no card, or several."""


@dataclass(frozen=True, slots=True)
class CordonableCard:
    """One card as its node publishes it, and whether its operators cordoned it."""

    node: str
    uuid: str
    is_cordoned: bool
    facts: CardFacts | None
    """None: cordoned, but the node publishes no such card."""


def read_cordoned_uuids(node: NodeObject) -> tuple[str, ...]:
    """The cordoned uuids, in the order of the annotation."""
    text = (node.metadata.annotations or {}).get(well_known.CORDONED_CARDS, "")
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def list_cards(node: NodeObject, cards: Iterable[CardFacts]) -> tuple[CordonableCard, ...]:
    """The node's cards by index, then cordoned uuids that the node does not publish. Cards without a uuid cannot be cordoned."""
    out = read_cordoned_uuids(node)
    name = node.metadata.name
    there = [CordonableCard(name, card.uuid, card.uuid in out, card) for card in cards if card.uuid is not None]
    known = {state.uuid for state in there}
    return (*there, *(CordonableCard(name, uuid, is_cordoned=True, facts=None) for uuid in out if uuid not in known))


def find_card(card_name: str, cards: Sequence[CordonableCard]) -> CordonableCard:
    """The card with that index, uuid, or beginning of a uuid. Raises `UnknownCardError` unless exactly one matches."""
    exact = [
        state
        for state in cards
        if card_name == state.uuid or (_is_index(card_name) and _has_index(state, int(card_name)))
    ]
    found = exact or [state for state in cards if card_name and _uuid_starts_with(state.uuid, card_name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownCardError(f"{card_name!r} may be {' or '.join(state.uuid for state in found)}; give more of it")
    there = ", ".join(state.uuid for state in cards) or "none"
    raise UnknownCardError(f"there is no card {card_name!r}; cards of the node: {there}")


def is_annotatable_uuid(text: str) -> bool:
    """Whether the annotation can hold this text as a uuid."""
    return text.isprintable() and not set(text) & {",", " "}


def build_cordon_patch(node: NodeObject, uuids: Sequence[str]) -> dict[str, object]:
    """The merge patch that cordons exactly these; it fails if the node has changed since it was read."""
    value = ",".join(uuids) or None
    version = node.metadata.resource_version
    return {"metadata": {"resourceVersion": version, "annotations": {well_known.CORDONED_CARDS: value}}}


def _is_index(named: str) -> bool:
    return named.isascii() and named.isdecimal() and len(named) <= MAX_INDEX_DIGITS


def _has_index(state: CordonableCard, index: int) -> bool:
    return state.facts is not None and state.facts.index == index


def _uuid_starts_with(uuid: str, named: str) -> bool:
    """Whether the uuid starts with this text, with or without `GPU-`."""
    return not _is_index(named) and (uuid.startswith(named) or uuid.partition("-")[2].startswith(named))
