"""Cards as a table, or as JSON of the same values."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vrampack.cli.card.cordons import CardState
from vrampack.cli.inspect.tables import aligned

HEADINGS = ("NODE", "CARD", "UUID", "MODEL", "MEMORY(MiB)", "UNITS", "STATE")
NUMBERS = (1, 4, 5)


def table(cards: Sequence[CardState]) -> str:
    """One line per card."""
    if not cards:
        return "No cards are published.\n"
    return aligned([HEADINGS, *(_row(card) for card in cards)], right=NUMBERS)


def as_json(cards: Sequence[CardState]) -> str:
    """A list of objects; what is not known of a card is null."""
    return json.dumps([_object(card) for card in cards], indent=2) + "\n"


def _row(card: CardState) -> tuple[str, ...]:
    facts = card.facts
    if facts is None:
        return card.node, "-", card.uuid, "-", "-", "-", "cordoned, not there"
    said = [word for word, applies in (("unhealthy", not facts.healthy), ("cordoned", card.cordoned)) if applies]
    state = ", ".join(said) or "ok"
    return card.node, str(facts.index), card.uuid, facts.model, str(facts.memory_mib), str(facts.units), state


def _object(card: CardState) -> dict[str, object]:
    facts = card.facts
    return {
        "node": card.node,
        "index": facts.index if facts else None,
        "uuid": card.uuid,
        "model": facts.model if facts else None,
        "memoryMiB": facts.memory_mib if facts else None,
        "units": facts.units if facts else None,
        "healthy": facts.healthy if facts else None,
        "cordoned": card.cordoned,
    }
