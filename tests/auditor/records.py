"""The record a pod carries: ours, then gpushare v3, v2, v1. The first one present wins, readable or not."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tests.auditor.raw import Raw, decimal, listing, mapping, required_mapping, strict_json, text, whole_number
from tests.auditor.terms import ALLOCATION_V2, ALLOCATION_V3, V1, Terms


@dataclass(frozen=True, slots=True)
class AuditedHolding:
    """Units on one card. gpushare names cards by index only."""

    index: int
    units: int
    uuid: str | None = None
    whole: bool = False
    of: int | None = None
    """The card's units at bind; None where the record does not say."""


@dataclass(frozen=True, slots=True)
class AuditedShare:
    """What one container may use of one card."""

    uuid: str | None
    units: int
    mib: int | None


@dataclass(frozen=True, slots=True)
class AuditedRecord:
    """Which cards a pod holds, according to a record of one of the four generations."""

    generation: str
    cards: tuple[AuditedHolding, ...]
    containers: Mapping[str, tuple[AuditedShare, ...]]

    @property
    def is_ours(self) -> bool:
        return self.generation == "ours"


class UnreadableRecordError(ValueError):
    """A record exists but does not tell which cards it means."""


def read_record(notes: Mapping[str, str], *, terms: Terms, v1_units: int) -> AuditedRecord | None:
    """The record among a pod's annotations; None when there is none. v1 without `_POD` means the whole request."""
    try:
        if (ours := notes.get(terms.allocation)) is not None:
            return _read_ours(mapping(strict_json(ours)))
        for generation, key in (("v3", ALLOCATION_V3), ("v2", ALLOCATION_V2)):
            if (shares := notes.get(key)) is not None:
                return AuditedRecord(generation, _held(units_by_card(shares)), {})
        if (index := notes.get(f"{V1}IDX")) is not None:
            return AuditedRecord("v1", _held({_number(index): _number(notes.get(f"{V1}POD", str(v1_units)))}), {})
    except ValueError as error:
        raise UnreadableRecordError(str(error)) from error
    return None


def units_by_container(source: str) -> dict[str, dict[int, int]]:
    """The gpushare value: container index -> card index -> units, zeroes left out."""
    found = required_mapping(strict_json(source))
    shares = {container: _cards_of(cards) for container, cards in found.items()}
    return {container: cards for container, cards in shares.items() if cards}


def units_by_card(source: str) -> dict[int, int]:
    """The gpushare value summed per card index."""
    sums: Counter[int] = Counter()
    for cards in units_by_container(source).values():
        sums.update(cards)
    return dict(sums)


def _cards_of(cards: object) -> dict[int, int]:
    found = {_number(index): _units(units) for index, units in required_mapping(cards).items()}
    return {index: units for index, units in found.items() if units}


def _held(cards: Mapping[int, int]) -> tuple[AuditedHolding, ...]:
    if not any(cards.values()):
        raise ValueError("no units on any card")
    return tuple(AuditedHolding(index, units) for index, units in sorted(cards.items()))


def _read_ours(found: Raw) -> AuditedRecord:
    if whole_number(found.get("v")) != 1:
        raise ValueError(f"version {found.get('v')!r} is not 1")
    cards = tuple(_read_held(mapping(raw)) for raw in listing(found.get("cards")))
    if not cards:
        raise ValueError("no cards")
    containers = {
        name: tuple(_read_share(mapping(raw)) for raw in listing(shares))
        for name, shares in required_mapping(found.get("containers")).items()
    }
    return AuditedRecord("ours", cards, containers)


def _read_held(raw: Raw) -> AuditedHolding:
    index, whole = whole_number(raw.get("index")), raw.get("whole")
    if index is None or index < 0 or not isinstance(whole, bool):
        raise ValueError("a card has no index or does not say whether it is held whole")
    of = raw.get("of")
    if of is not None and not _units(of):
        raise ValueError("a card had no units at bind")
    return AuditedHolding(index, _units(raw.get("units")), _uuid(raw), whole, None if of is None else _units(of))


def _read_share(raw: Raw) -> AuditedShare:
    return AuditedShare(_uuid(raw), _units(raw.get("units")), whole_number(raw.get("mib")))


def _uuid(raw: Raw) -> str | None:
    uuid = raw.get("uuid")
    if uuid is not None and not text(uuid):
        raise ValueError(f"uuid {uuid!r} is neither a name nor null")
    return uuid


def _units(value: object) -> int:
    units = whole_number(value)
    if units is None or units < 0:
        raise ValueError(f"units {value!r} are not a whole number")
    return units


def _number(value: str) -> int:
    number = decimal(value)
    if number is None:
        raise ValueError(f"{value!r} is not a whole number")
    return number
