"""Unit arithmetic and quantity parsing. Nothing else in the project divides memory by units.

The ledger counts whole units of the resource; MiB appear only where a limit is set.
"""

from __future__ import annotations

import re
from fractions import Fraction

MIB = 1024 * 1024
"""In bytes."""
DEFAULT_UNIT_MIB = 1024
MAX_UNITS = 1_048_576
"""More than any card has in any sane unit: 2^20 units of 1 MiB are 1 TiB. Larger requests are mistakes (`10G`)."""

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?",
    re.ASCII,
)
_SCALES = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), start=1)},
    "": Fraction(1),
}


FAST_PATH_DIGITS = 18
"""A plain number of at most this many digits fits 64 bits and needs no further parsing."""


def parse_quantity(text: str) -> Fraction:
    """The exact value of a Kubernetes quantity. Raises `ValueError` when the text is not one.

    The grammar is https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ ; numbers of more
    than 40 digits are rejected, so that a hostile text cannot cost time.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a quantity")
    suffix = match["suffix"] or ""
    scale = _SCALES[suffix] if suffix in _SCALES else Fraction(10) ** int(suffix[1:])
    return Fraction(match["number"]) * scale


def parse_units(text: str) -> int:
    """A quantity as a whole, non-negative number of units. Raises `ValueError` with what is wrong otherwise."""
    if len(text) <= FAST_PATH_DIGITS and text.isascii() and text.isdecimal():
        return int(text)  # the usual case; fractions take a fifth of the time of decoding a pod
    value = parse_quantity(text)
    if value < 0:
        raise ValueError(f"{text[:60]!r} is negative")
    if value.denominator != 1:
        raise ValueError(f"{text[:60]!r} is not a whole number of units")
    return value.numerator


def count_card_units(memory_mib: int, unit_mib: int) -> int:
    """How many whole units a card of `memory_mib` MiB has: 16130 MiB give 15 units of 1024."""
    return memory_mib // unit_mib


def format_memory(units: int, unit_mib: int) -> str:
    """For people: in GiB if that is exact."""
    mib = units * unit_mib
    return f"{mib} MiB" if mib % 1024 else f"{mib // 1024} GiB"


def scale_units(units: int, from_units: int, to_units: int) -> int:
    """The same share of a card that has `to_units` now and had `from_units`, rounded up: 10 of 14 units are 11 of 15."""
    return -(-units * to_units // from_units)


def find_card_units(memory_mib: int, given_units: int, limit_mib: int, likely_units: int) -> int | None:
    """The units of a card of which `compute_limit_mib` gives this limit for `given_units`; None if there is no such number.

    A small share may be of several numbers: then `likely_units` if it is one of them, else the least, of which it is most.
    """
    if limit_mib < 1:
        return None
    least, most = memory_mib * given_units // (limit_mib + 1) + 1, memory_mib * given_units // limit_mib
    if least <= likely_units <= most:
        return likely_units
    return least if least <= most else None


def compute_limit_mib(memory_mib: int, given_units: int, card_units: int, reserve_mib: int = 0) -> int:
    """What a container with `given_units` of a card's `card_units` may use, in MiB.

    The share is of the card's real memory, so none of it is lost to rounding units:
    4 of 15 units of a 16130 MiB card are 4301 MiB. `reserve_mib` is kept back from every card first.
    """
    return max(0, memory_mib - reserve_mib) * given_units // card_units
