"""What `vrampack card heal` writes: the operator's confirmation that ends the current verdict on a card. Pure.

It names the verdict by its time, so it ends that verdict and no later one, whatever the clocks of both machines say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.card_verdicts import CardHeal, StoredVerdict, read_heals, read_stored_verdicts, write_heals
from vrampack.cli.card.cordons import CordonableCard, UnknownCardError, find_card
from vrampack.kube.objects import NodeObject


@dataclass(frozen=True, slots=True)
class PlannedHeal:
    """The message to the operator, and the patch, None when there is nothing to write."""

    text: str
    patch: dict[str, object] | None = None


def find_healable_uuid(node: NodeObject, card_name: str, cards: Sequence[CordonableCard]) -> str:
    """The uuid of the named card: one that the node publishes or, by its whole uuid, an absent one with a verdict."""
    if any(stored.uuid == card_name for stored in _read_verdicts(node)):
        return card_name
    try:
        return find_card(card_name, cards).uuid
    except UnknownCardError as error:
        raise UnknownCardError(f"node {node.metadata.name}: {error}") from error


def plan_heal(node: NodeObject, uuid: str, *, is_forced: bool) -> PlannedHeal:
    """Plan to end the verdict on this card; `is_forced`: even if NVML still reports its cause."""
    who = f"node/{node.metadata.name} card {uuid}"
    heals = read_heals((node.metadata.annotations or {}).get(well_known.HEALED_CARDS))
    before = heals.get(uuid)
    stored = next((each for each in _read_verdicts(node) if each.uuid == uuid), None)
    if stored is None:
        if is_forced or before is None or not before.waived:
            return PlannedHeal(f"{who}: nothing to heal: it has no verdict\n")
        heal = CardHeal(before.at)
        text = f"{who}: what its driver reports counts again (overridden before: {', '.join(before.waived)})\n"
    elif is_forced:
        waived = (*(before.waived if before else ()), stored.verdict.cause)
        heal = CardHeal(stored.verdict.since, tuple(dict.fromkeys(waived)))
        text = f"{who}: healed, whatever its driver reports (before: {stored.reason})\n"
    else:
        heal = CardHeal(stored.verdict.since)
        text = f"{who}: healed as soon as its driver reports no problem (before: {stored.reason})\n"
    if heal == before:
        return PlannedHeal(text)
    value = write_heals({**heals, uuid: heal})
    version = node.metadata.resource_version
    return PlannedHeal(
        text, {"metadata": {"resourceVersion": version, "annotations": {well_known.HEALED_CARDS: value}}}
    )


def _read_verdicts(node: NodeObject) -> tuple[StoredVerdict, ...]:
    return read_stored_verdicts((node.metadata.annotations or {}).get(well_known.NODE_CARDS))
