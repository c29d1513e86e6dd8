"""Devices as kubelet counts them: one per unit of a card, with an id that names the card."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vrampack.agent.kubelet.generated.deviceplugin_pb2 import Device, ListAndWatchResponse
from vrampack.cards.node import CardFacts

SEPARATOR = "::"
"""The separator that NVIDIA's plugin uses for parts of a GPU, so that dcgm-exporter can map pods to our cards."""
GPUSHARE_SEPARATOR = "-_-"
MAX_LIST_BYTES = 3 * 1024 * 1024
"""kubelet receives 4 MiB and drops a plugin that sends more; the rest is for overhead."""
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


def make_device_ids(card: CardFacts) -> list[str]:
    """One id per unit, stable across restarts. At most 63 characters for every uuid that NVML gives."""
    return [f"{card.uuid}{SEPARATOR}{number}" for number in range(card.units)]


def parse_card_uuid(device_id: str) -> str | None:
    """The uuid in an id of ours; None if the id has another plugin's form."""
    uuid, separator, number = device_id.rpartition(SEPARATOR)
    return uuid if separator and uuid and number.isascii() and number.isdecimal() else None


def count_units_by_card(ids: Iterable[str]) -> dict[str, int] | None:
    """Units per card in these ids, or None when one of them is not ours."""
    cards = [parse_card_uuid(each) for each in ids]
    if None in cards:
        return None
    return dict(Counter(card for card in cards if card is not None))


def count_readable_units(ids: Iterable[str]) -> dict[str, int]:
    """Units per card in ids of ours and of gpushare's plugin; other ids are ignored."""
    cards = [parse_card_uuid(each.replace(GPUSHARE_SEPARATOR, SEPARATOR)) for each in ids]
    return dict(Counter(card for card in cards if card is not None))


def build_device_list(cards: Iterable[CardFacts]) -> ListAndWatchResponse:
    """All devices of these cards with their health."""
    return ListAndWatchResponse(
        devices=[
            Device(ID=each, health=HEALTHY if card.healthy else UNHEALTHY)
            for card in cards
            for each in make_device_ids(card)
        ]
    )


def find_list_problem(cards: Sequence[CardFacts], unit_mib: int) -> str:
    """Why kubelet could not take the list of these cards, and the unit that would do; empty when it can."""
    size = sum(card.units * _device_bytes(card) for card in cards)
    if size <= MAX_LIST_BYTES:
        return ""
    unit = unit_mib
    while size > MAX_LIST_BYTES:
        unit, size = unit * 2, size // 2
    count = sum(card.units for card in cards)
    return (
        f"unit_mib: {unit_mib} makes {count} devices, more than kubelet can be told in one message; set {unit} "
        "on every node and on the extender: running pods keep their memory, requests count in the new unit"
    )


def _device_bytes(card: CardFacts) -> int:
    """The most bytes that one device of the card takes, so that a list of millions need not be built to be measured."""
    longest = Device(ID=f"{card.uuid}{SEPARATOR}{card.units}", health=UNHEALTHY)
    return ListAndWatchResponse(devices=[longest]).ByteSize()


class WantedUnits(NamedTuple):
    """The units on each card, by uuid, of the container that kubelet probably means."""

    units: Mapping[str, int]
    is_whole: bool = False
    """Whether its pod has these cards to itself. They may have fewer units than it asks for."""


def choose_preferred_ids(
    available: Sequence[str], required: Sequence[str], size: int, wanted: WantedUnits | None
) -> list[str]:
    """`size` of the available ids: those of the wanted cards first, else of the card that they fill best.

    kubelet takes the answer as a hint, and the container's environment does not depend on it.
    """
    chosen = list(required[:size])
    by_card: defaultdict[str, list[str]] = defaultdict(list)
    for each in available:
        if each not in chosen:
            by_card[parse_card_uuid(each) or ""].append(each)
    units_by_card, is_whole = wanted or WantedUnits({})
    wishes = list(units_by_card.items())
    if is_whole:
        wishes += [(card, size) for card in units_by_card]  # what is left of its own cards, before any other
    elif any(len(by_card[card]) < units for card, units in wishes):
        wishes = []  # parts are of no use
    for card, units in wishes:
        count = min(units, size - len(chosen))
        chosen += by_card[card][:count]
        by_card[card] = by_card[card][count:]
    while len(chosen) < size and any(by_card.values()):
        missing = size - len(chosen)
        card = min((len(ids) < missing, len(ids), card) for card, ids in by_card.items() if ids)[2]
        chosen += by_card.pop(card)[:missing]
    return chosen
