"""Which cards of a node are cordoned, and what a node is to say so after one more or one less. Pure.

The annotation `vrampack.dev/cordoned-cards` is the operators' alone: the agent never writes it, so a cordon outlives
agents, drivers and the card itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vrampack.cards import keys
from vrampack.cards.node import CardFacts
from vrampack.kube.objects import NodeObject

INDEX_DIGITS = 4
"""A longer number is the beginning of a uuid."""


class UnknownCardError(Exception):
    """No card, or several, are what was named."""


@dataclass(frozen=True, slots=True)
class CardState:
    """One card as its node publishes it, and what its operators say of it."""

    node: str
    uuid: str
    cordoned: bool
    facts: CardFacts | None
    """None: cordoned, but the node publishes no such card."""


def cordoned(node: NodeObject) -> tuple[str, ...]:
    """The uuids, in the order in which they were written."""
    text = (node.metadata.annotations or {}).get(keys.CORDONED_CARDS, "")
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def states(node: NodeObject, cards: Iterable[CardFacts]) -> tuple[CardState, ...]:
    """The node's cards by index, then what is cordoned and not there. Cards without a uuid cannot be cordoned."""
    out = cordoned(node)
    name = node.metadata.name
    there = [CardState(name, card.uuid, card.uuid in out, card) for card in cards if card.uuid is not None]
    known = {state.uuid for state in there}
    return (*there, *(CardState(name, uuid, cordoned=True, facts=None) for uuid in out if uuid not in known))


def find(named: str, known: Sequence[CardState]) -> CardState:
    """The card of that index, uuid, or beginning of a uuid. Raises `UnknownCardError` when it is not exactly one."""
    exact = [state for state in known if named == state.uuid or (_is_index(named) and _has_index(state, int(named)))]
    found = exact or [state for state in known if named and _begins(state.uuid, named)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownCardError(f"{named!r} may be {' or '.join(state.uuid for state in found)}; give more of it")
    there = ", ".join(state.uuid for state in known) or "none"
    raise UnknownCardError(f"there is no card {named!r}; cards of the node: {there}")


def is_uuid(text: str) -> bool:
    """Whether it can stand in the annotation at all."""
    return text.isprintable() and not set(text) & {",", " "}


def patch(node: NodeObject, uuids: Sequence[str]) -> dict[str, object]:
    """The merge patch that makes exactly these cordoned, unless the node has changed since it was read."""
    value = ",".join(uuids) or None
    version = node.metadata.resource_version
    return {"metadata": {"resourceVersion": version, "annotations": {keys.CORDONED_CARDS: value}}}


def _is_index(named: str) -> bool:
    return named.isascii() and named.isdecimal() and len(named) <= INDEX_DIGITS


def _has_index(state: CardState, index: int) -> bool:
    return state.facts is not None and state.facts.index == index


def _begins(uuid: str, named: str) -> bool:
    """With or without `GPU-`."""
    return not _is_index(named) and (uuid.startswith(named) or uuid.partition("-")[2].startswith(named))
