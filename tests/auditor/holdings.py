"""I1: what live pods hold on a card never exceeds it, and a card held whole is held by one pod."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.auditor.cards import AuditedCard, NodeCards
from tests.auditor.pods import AuditedPod
from tests.auditor.terms import Violation


@dataclass(frozen=True, slots=True)
class AuditedCardHolding:
    """Units that one live pod holds on one card."""

    pod: AuditedPod
    units: int
    whole: bool = False
    note: str = ""

    def __str__(self) -> str:
        notes = [self.note, "whole" if self.whole else "", "terminating" if self.pod.terminating else ""]
        return " ".join([self.pod.name, str(self.units), *(f"({note})" for note in notes if note)])


def find_oversold_cards(node: NodeCards, pods: Iterable[AuditedPod], *, count_unrecorded: bool) -> Iterator[Violation]:
    """Every card of the node on which the live pods given hold more than it has."""
    live = [pod for pod in pods if pod.is_live]
    for card in node.cards:
        held = find_holdings(node, card, live, count_unrecorded=count_unrecorded)
        who = ", ".join(map(str, sorted(held, key=lambda holding: holding.pod.name)))
        where = f"node {node.name} card {card.index}"
        if (total := sum(holding.units for holding in held)) > card.units:
            yield Violation("I1", where, f"{total} of {card.units} units held: {who}")
        if len({holding.pod.uid for holding in held}) > 1 and any(holding.whole for holding in held):
            yield Violation("I1", where, f"held whole and shared: {who}")


def find_holdings(
    node: NodeCards, card: AuditedCard, live: Iterable[AuditedPod], *, count_unrecorded: bool = True
) -> list[AuditedCardHolding]:
    """What live pods of this node hold on one card of it."""
    return [holding for pod in live for holding in _on_card(pod, node, card, count_unrecorded=count_unrecorded)]


def _on_card(
    pod: AuditedPod, node: NodeCards, card: AuditedCard, *, count_unrecorded: bool
) -> Iterator[AuditedCardHolding]:
    record = pod.record
    if record and all(node.find_card(uuid=held.uuid, index=held.index) for held in record.cards):
        for held in record.cards:
            if node.find_card(uuid=held.uuid, index=held.index) == card:
                yield AuditedCardHolding(pod, held.units, held.whole)
        return
    if (seen := (node.observed or {}).get(pod.uid)) is not None:
        units = sum(units for uuid, units in seen if uuid == card.uuid)
        if units:
            yield AuditedCardHolding(pod, units, note="observed")
    elif count_unrecorded and (units := _somewhere(pod, card)):
        yield AuditedCardHolding(pod, units, note="on some card of this node")


def _somewhere(pod: AuditedPod, card: AuditedCard) -> int:
    """Without a record that says where, a pod counts on every card of its node."""
    if pod.record:
        return max(held.units for held in pod.record.cards)
    if pod.ask.whole and pod.ask.units:
        return card.units
    return -(-pod.ask.units // pod.ask.cards)
