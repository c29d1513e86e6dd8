"""What a human may have to see of a node and those who hold something there: it becomes an event, a counter, a log line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vrampack.cards.holding import Hold
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, UnreadableRecord


@dataclass(frozen=True, slots=True)
class LedgerProblem:
    """Something a human may have to see: becomes an event, a counter and a log line."""

    kind: Literal["record_missing", "record_unreadable", "card_unknown", "records_disagree", "overcommitted"]
    node_name: str
    text: str
    pod: Pod | None = None
    card: int | None = None
    """The index of the card that it is about, if it is about one."""

    @property
    def subject(self) -> str:
        """What of the node it is about: with the kind, the same as long as it is the same trouble."""
        return self.pod.uid if self.pod is not None else self.text


def find_problems(node: Node, holds: Iterable[Hold]) -> Iterable[LedgerProblem]:
    """All that is wrong on one node now."""
    for hold in holds:
        if hold.state in ("bound", "terminating"):
            record = hold.pod.record
            if hold.unplaced_reason:
                yield LedgerProblem(_get_kind(record), node.name, hold.unplaced_reason, hold.pod)
            if isinstance(record, Record) and record.disagreement:
                yield LedgerProblem("records_disagree", node.name, record.disagreement, hold.pod)
    for card in node.cards:
        if card.is_overcommitted:
            text = f"card {card.index} holds {card.used_units} of {card.units} units"
            yield LedgerProblem("overcommitted", node.name, text, card=card.index)


def _get_kind(
    record: Record | UnreadableRecord | None,
) -> Literal["record_missing", "record_unreadable", "card_unknown"]:
    if record is None:
        return "record_missing"
    return "record_unreadable" if isinstance(record, UnreadableRecord) else "card_unknown"
