"""Cards as a table, or as JSON of the same values."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vrampack.cli.card.cordons import CordonableCard
from vrampack.cli.inspect.text_columns import align_columns

HEADINGS = ("NODE", "CARD", "UUID", "MODEL", "MEMORY(MiB)", "UNITS", "STATE")
RIGHT_COLUMNS = (1, 4, 5)


def format_table(cards: Sequence[CordonableCard], *, max_width: int | None = None) -> str:
    """One line per card."""
    if not cards:
        return "No cards are published.\n"
    rows = [HEADINGS, *(_build_row(card) for card in cards)]
    return align_columns(rows, right_columns=RIGHT_COLUMNS, max_width=max_width)


def format_json(cards: Sequence[CordonableCard]) -> str:
    """A list of objects; unknown facts of a card are null."""
    return json.dumps([_build_object(card) for card in cards], indent=2) + "\n"


def _build_row(card: CordonableCard) -> tuple[str, ...]:
    facts = card.facts
    if facts is None:
        return card.node, "-", card.uuid, "-", "-", "-", "cordoned, not there"
    sick = f"unhealthy ({facts.reason})" if facts.reason else "unhealthy"
    said = [word for word, applies in ((sick, not facts.healthy), ("cordoned", card.is_cordoned)) if applies]
    state = ", ".join(said) or "ok"
    return card.node, str(facts.index), card.uuid, facts.model, str(facts.memory_mib), str(facts.units), state


def _build_object(card: CordonableCard) -> dict[str, object]:
    facts = card.facts
    return {
        "node": card.node,
        "index": facts.index if facts else None,
        "uuid": card.uuid,
        "model": facts.model if facts else None,
        "memoryMiB": facts.memory_mib if facts else None,
        "units": facts.units if facts else None,
        "healthy": facts.healthy if facts else None,
        "reason": facts.reason if facts else None,
        "cordoned": card.is_cordoned,
    }
