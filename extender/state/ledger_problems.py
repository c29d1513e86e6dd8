"""Problems of a node and of the pods that hold its cards; each becomes an event, a counter and a log line."""

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
    """Something that an operator may have to act on."""

    kind: Literal["record_missing", "record_unreadable", "card_unknown", "records_disagree", "overcommitted"]
    node_name: str
    text: str
    pod: Pod | None = None
    card: int | None = None
    """The index of the card concerned, if it concerns one."""

    @property
    def subject(self) -> str:
        """Identifies the problem together with its kind: the uid of the pod, or the text."""
        return self.pod.uid if self.pod is not None else self.text


class ReportedProblems:
    """What was wrong on each node at its last count."""

    def __init__(self) -> None:
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}

    def find_new_problems(self, node: Node, holds: Iterable[Hold]) -> list[LedgerProblem]:
        """The problems of the node that it did not have at its last count."""
        found = {(problem.kind, problem.subject): problem for problem in find_problems(node, holds)}
        reported = self._reported.get(node.name, frozenset())
        self._reported[node.name] = frozenset(found)
        return [found[key] for key in found.keys() - reported]

    def forget_node(self, name: str) -> None:
        self._reported.pop(name, None)


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
            held = f"its pods hold {card.used_units} of {card.units} units"
            text = f"card {card.index} is promised beyond its memory and gets no new pods: {held}"
            yield LedgerProblem("overcommitted", node.name, text, card=card.index)


def _get_kind(
    record: Record | UnreadableRecord | None,
) -> Literal["record_missing", "record_unreadable", "card_unknown"]:
    if record is None:
        return "record_missing"
    return "record_unreadable" if isinstance(record, UnreadableRecord) else "card_unknown"
