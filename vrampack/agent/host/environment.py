"""Computes the limit of a container on a host without Kubernetes from its environment.

    ALIYUN_COM_GPU_MEM_CONTAINER    units of this container, 6
    ALIYUN_COM_GPU_MEM_DEV          units that a whole card has, 15: the limit is 6/15 of each card's memory
    ALIYUN_COM_GPU_VISIBLE_DEVICES  the cards, by index or UUID, comma separated; the only card without it
    ALIYUN_COM_GPU_SCHD_WEIGHT      share of compute, 1 to 16
    CGPU_DISABLE                    true or 1: no limit

An unclear value is a `LimitError` that names the variable and what to write instead: the container does not start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vrampack.agent.limits.errors import LimitError
from vrampack.cards.env_injection import CONTAINER_UNITS_VARIABLE, DISABLE_VARIABLE
from vrampack.cards.node import CardFacts
from vrampack.cards.units import MAX_UNITS, compute_limit_mib, parse_units

CARD_UNITS = "ALIYUN_COM_GPU_MEM_DEV"
VISIBLE_DEVICES = "ALIYUN_COM_GPU_VISIBLE_DEVICES"
WEIGHT = "ALIYUN_COM_GPU_SCHD_WEIGHT"
VARIABLES = (CONTAINER_UNITS_VARIABLE, CARD_UNITS, VISIBLE_DEVICES, WEIGHT, DISABLE_VARIABLE)
"""All variables that are read; `shim/hook/variables.c` sends the same."""
MAX_WEIGHT = 16
_MAX_QUOTED = 60
"""How much of a value a refusal repeats."""


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a container's environment asks for."""

    units: int
    card_units: int
    cards: tuple[str, ...] = ()
    """Indices or UUIDs; empty if none is named."""
    weight: int | None = None


def parse_environment(env: Sequence[str]) -> HostRequest | None:
    """The request in these `NAME=value`; None for a container that switched its limit off. An empty value counts as unset."""
    values = _read_values(env)
    if _is_disabled(values.get(DISABLE_VARIABLE, "")):
        return None
    if CONTAINER_UNITS_VARIABLE not in values:
        raise LimitError(
            f"{CONTAINER_UNITS_VARIABLE} is not set: give the units of this container, and {CARD_UNITS} those of a whole card"
        )
    if CARD_UNITS not in values:
        raise LimitError(
            f"{CARD_UNITS} is not set: give the units of a whole card, of which {CONTAINER_UNITS_VARIABLE} is a part"
        )
    units, card_units = (
        _parse_units(CONTAINER_UNITS_VARIABLE, values[CONTAINER_UNITS_VARIABLE]),
        _parse_units(CARD_UNITS, values[CARD_UNITS]),
    )
    if units > card_units:
        raise LimitError(
            f"{CONTAINER_UNITS_VARIABLE}={units} is more than the {card_units} units of a whole card in {CARD_UNITS}"
        )
    return HostRequest(
        units, card_units, _parse_cards(values.get(VISIBLE_DEVICES, "")), _parse_weight(values.get(WEIGHT, ""))
    )


def compute_limits_mib(request: HostRequest, cards: Sequence[CardFacts]) -> dict[str, int]:
    """MiB by uuid, for each card that the request names. `cards` are those of this host."""
    return {card.uuid or "": _compute_limit_mib(request, card) for card in _select_cards(request, cards)}


def _read_values(env: Sequence[str]) -> dict[str, str]:
    """The values by name. A repeated variable is refused: programs differ about which one counts."""
    values: dict[str, str] = {}
    for entry in env:
        name, _, value = entry.partition("=")
        if name in values:
            raise LimitError(f"{name} is set twice in the environment: set it once")
        if name in VARIABLES:
            values[name] = value
    return {name: value for name, value in values.items() if value}


def _is_disabled(value: str) -> bool:
    if value not in {"", "true", "1", "false", "0"}:
        raise LimitError(
            f"{DISABLE_VARIABLE}={_quote(value)}: give true or 1 for a container without a limit, or leave it out"
        )
    return value in {"true", "1"}


def _parse_units(name: str, value: str) -> int:
    try:
        units = parse_units(value)
    except ValueError as error:
        raise LimitError(f"{name}={_quote(value)}: {error}; give a whole number of units, 1 or more") from error
    if not 1 <= units <= MAX_UNITS:
        raise LimitError(f"{name}={_quote(value)}: give a whole number of units, 1 to {MAX_UNITS}")
    return units


def _parse_weight(value: str) -> int | None:
    if not value:
        return None
    if not (
        value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_WEIGHT)) and 1 <= int(value) <= MAX_WEIGHT
    ):
        raise LimitError(f"{WEIGHT}={_quote(value)}: give a whole number from 1 to {MAX_WEIGHT}")
    return int(value)


def _parse_cards(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",")) if value else ()
    if "" in names:
        raise LimitError(f"{VISIBLE_DEVICES}={_quote(value)}: give indices or UUIDs with one comma between two")
    return names


def _select_cards(request: HostRequest, cards: Sequence[CardFacts]) -> tuple[CardFacts, ...]:
    """The cards in the request's order; a card that is named both by index and by UUID counts once."""
    if not request.cards and len(cards) != 1:
        raise LimitError(
            f"{VISIBLE_DEVICES} is not set: this host has {len(cards)} cards, {_format_cards(cards)}; name some"
        )
    known: Mapping[str, CardFacts] = {name: card for card in cards for name in (str(card.index), card.uuid or "")}
    chosen = []
    for name in request.cards or (str(cards[0].index),):
        card = known.get(name)
        if card is None:
            raise LimitError(f"{VISIBLE_DEVICES}: this host has no card {_quote(name)}; it has {_format_cards(cards)}")
        if not card.healthy:
            raise LimitError(f"{VISIBLE_DEVICES}: card {_quote(name)} is not healthy; name another")
        chosen.append(card)
    return tuple(chosen)


def _compute_limit_mib(request: HostRequest, card: CardFacts) -> int:
    mib = compute_limit_mib(card.memory_mib, request.units, request.card_units)
    if mib < 1:
        text = f"{CONTAINER_UNITS_VARIABLE}={request.units} of {CARD_UNITS}={request.card_units} is less than 1 MiB of card {card.uuid}"
        raise LimitError(f"{text} ({card.memory_mib} MiB): give more units")
    return mib


def _format_cards(cards: Sequence[CardFacts]) -> str:
    return ", ".join(f"{card.index} ({card.uuid})" for card in cards) or "none"


def _quote(value: str) -> str:
    return repr(value) if len(value) <= _MAX_QUOTED else repr(value[:_MAX_QUOTED]) + ".."
