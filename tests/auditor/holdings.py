"""I1: what live pods hold on a card never exceeds it, and a card held whole is held by one pod."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from tests.auditor.cards import AuditedCard, NodeCards
from tests.auditor.pods import AuditedPod
from tests.auditor.records import AuditedHolding, AuditedRecord
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
                yield AuditedCardHolding(pod, _units_now(held, card, record), held.whole)
        return
    if (seen := (node.observed or {}).get(pod.uid)) is not None:
        units = sum(units for uuid, units in seen if uuid == card.uuid)
        if units:
            yield AuditedCardHolding(pod, units, note="observed")
    elif count_unrecorded and (units := _somewhere(pod, card)):
        yield AuditedCardHolding(pod, units, note="on some card of this node")


def _units_now(held: AuditedHolding, card: AuditedCard, record: AuditedRecord) -> int:
    """The same part of the card, in the units that the card has today."""
    if held.whole:
        return card.units
    of = held.of or _find_units_at_bind(held, card, record)
    return _scale(held.units, of, card.units) if of else held.units


def _scale(units: int, of: int, now: int) -> int:
    whole, rest = divmod(units * now, of)
    return whole + bool(rest)


def _find_units_at_bind(held: AuditedHolding, card: AuditedCard, record: AuditedRecord) -> int | None:
    """The units of a card of which the record's limit is the share: today's if they are, else the first found."""
    limits = [
        (share.units, share.mib)
        for shares in record.containers.values()
        for share in shares
        if held.uuid is not None and share.uuid == held.uuid and share.units and share.mib
    ]
    if not limits or not card.memory_mib:
        return None
    units, mib = max(limits)
    if card.units and card.memory_mib * units // card.units == mib:
        return card.units
    limit = next((of, found) for of in count(1) if (found := card.memory_mib * units // of) <= mib)
    return limit[0] if limit[1] == mib else None


def _somewhere(pod: AuditedPod, card: AuditedCard) -> int:
    """Without a record that says where, a pod counts on every card of its node."""
    if pod.record:
        now = [_scale(held.units, held.of, card.units) for held in pod.record.cards if held.of]
        return max([*now, *(held.units for held in pod.record.cards)])
    if pod.ask.whole and pod.ask.units:
        return card.units
    return -(-pod.ask.units // pod.ask.cards)
