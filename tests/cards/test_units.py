"""Unit arithmetic and the quantity grammar: what a limit is, and which texts are a number of units."""

from __future__ import annotations

import time
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrampack.cards.units import DEFAULT_UNIT_MIB, MAX_UNITS, compute_limit_mib, count_card_units, parse_units

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

UNITS = {
    # 16130 / 1024 = 15.75
    "a V100 of 16 GB": (16130, 1024, 15),
    # 15109 / 1024 = 14.75
    "a T4": (15109, 1024, 14),
    # 16130 / 256 = 63.0
    "small units": (16130, 256, 63),
    "exactly one": (1024, 1024, 1),
    "less than one": (1023, 1024, 0),
}

LIMITS = {
    # 16130 x 4 / 15 = 4301.3
    "two small pods share a V100": (16130, 4, 15, 0, 4301),
    # 15109 x 6 / 15 = 6043.6; the T4's units are pinned to 15
    "6 of 15 on a T4": (15109, 6, 15, 0, 6043),
    # 15109 x 8 / 15 = 8058.1
    "8 of 15 on a T4": (15109, 8, 15, 0, 8058),
    # 16130 x 15 / 15
    "all units are the whole card": (16130, 15, 15, 0, 16130),
    # (16130 - 300) x 4 / 15 = 4221.3
    "the reserve is kept back first": (16130, 4, 15, 300, 4221),
    # 16130 - 300
    "the whole card, less the reserve": (16130, 15, 15, 300, 15830),
    # 100 - 300 < 0
    "a reserve larger than the card": (100, 1, 1, 300, 0),
}

QUANTITIES = {
    "0": 0,
    "-0": 0,
    "4": 4,
    "+4": 4,
    "007": 7,
    "4.0": 4,
    "4.": 4,
    "4000m": 4,
    "4000000u": 4,
    "4000000000n": 4,
    "1000e-3": 1,
    ".5Ki": 512,
    "1k": 1000,
    "1.5k": 1500,
    "1Ki": 1024,
    "1e3": 1000,
    "1E3": 1000,
    "1e+3": 1000,
    "1e0": 1,
    "1Mi": 2**20,
    "10G": 10**10,
    "5E": 5 * 10**18,
    "1Ei": 2**60,
    str(2**63): 2**63,
}

NO_QUANTITIES = {
    "": "not a quantity",
    " 4": "not a quantity",
    "4 ": "not a quantity",
    "4\n": "not a quantity",
    "٤": "not a quantity",
    "４": "not a quantity",  # noqa: RUF001 - a four of full width
    "0x4": "not a quantity",
    "1_000": "not a quantity",
    "1,000": "not a quantity",
    "4K": "not a quantity",
    "4ki": "not a quantity",
    "4GiB": "not a quantity",
    "4e": "not a quantity",
    "4e1.5": "not a quantity",
    ".": "not a quantity",
    "+": "not a quantity",
    "Ki": "not a quantity",
    "--4": "not a quantity",
    "four": "not a quantity",
    "NaN": "not a quantity",
    "Infinity": "not a quantity",
    "null": "not a quantity",
    "1e999": "not a quantity",
    "-4": "negative",
    "-1Ki": "negative",
    "-1m": "negative",
    "1.5": "not a whole number",
    "1500m": "not a whole number",
    "4n": "not a whole number",
    "1e-3": "not a whole number",
    "0.3Ki": "not a whole number",
}

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "e2": 2, "E-2": -2}
BINARY_POWERS = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


@pytest.mark.parametrize(("memory_mib", "unit_mib", "want"), UNITS.values(), ids=UNITS)
def test_units_of_a_card(memory_mib: int, unit_mib: int, want: int) -> None:
    assert count_card_units(memory_mib, unit_mib) == want


@pytest.mark.parametrize(
    ("memory_mib", "given_units", "card_units", "reserve_mib", "want"), LIMITS.values(), ids=LIMITS
)
def test_limit_of_a_container(memory_mib: int, given_units: int, card_units: int, reserve_mib: int, want: int) -> None:
    assert compute_limit_mib(memory_mib, given_units, card_units, reserve_mib) == want


def test_a_limit_in_bytes_is_what_the_container_reports() -> None:
    assert compute_limit_mib(16130, 4, count_card_units(16130, DEFAULT_UNIT_MIB)) * 2**20 == 4509925376


@st.composite
def full_cards(draw: st.DrawFn) -> tuple[int, int, list[int], int]:
    """Memory, units, and the units of containers that fill the card to the last; a reserve that fits."""
    parts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    memory_mib = draw(st.integers(1, 200_000))
    return memory_mib, sum(parts), parts, draw(st.integers(0, memory_mib))


@PATIENT
@given(full_cards())
def test_limits_that_fill_a_card_never_exceed_it_and_lose_less_than_a_mib_each(
    card: tuple[int, int, list[int], int],
) -> None:
    memory_mib, units, parts, reserve_mib = card
    given_mib = sum(compute_limit_mib(memory_mib, part, units, reserve_mib) for part in parts)
    room_mib = memory_mib - reserve_mib
    assert room_mib - len(parts) < given_mib <= room_mib


@PATIENT
@given(st.integers(1, 200_000), st.integers(1, 200), st.data())
def test_a_limit_never_falls_when_units_are_added(memory_mib: int, units: int, data: st.DataObject) -> None:
    fewer = data.draw(st.integers(0, units - 1))
    assert compute_limit_mib(memory_mib, fewer, units) <= compute_limit_mib(memory_mib, fewer + 1, units) <= memory_mib


@pytest.mark.parametrize(("text", "want"), QUANTITIES.items(), ids=[repr(text) for text in QUANTITIES])
def test_quantities(text: str, want: int) -> None:
    assert parse_units(text) == want


@pytest.mark.parametrize(("text", "why"), NO_QUANTITIES.items(), ids=[ascii(text) for text in NO_QUANTITIES])
def test_a_fraction_of_a_unit_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_units(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 10**6, "1." + "0" * 10**6, "1e" + "9" * 10**6, "-" + "9" * 10**6])
def test_a_million_digits_are_rejected_quickly(text: str) -> None:
    """Parsed as a number, they would hold the loop for seconds."""
    before = time.process_time()
    with pytest.raises(ValueError, match="not a quantity") as caught:
        parse_units(text)
    assert time.process_time() - before < 0.2
    assert len(str(caught.value)) < 200


@PATIENT
@given(st.integers(0, 10**12), st.integers(0, 9), st.sampled_from(sorted(POWERS.keys() | BINARY_POWERS.keys())))
def test_quantities_match_decimal_arithmetic(number: int, digit: int, suffix: str) -> None:
    text = f"{number}.{digit}" if digit else str(number)
    with localcontext(prec=100):
        scale = Decimal(1024) ** BINARY_POWERS[suffix] if suffix in BINARY_POWERS else Decimal(10) ** POWERS[suffix]
        want = Decimal(text) * scale
        is_whole = want == want.to_integral_value()
    if is_whole:
        assert parse_units(text + suffix) == int(want)
    else:
        with pytest.raises(ValueError, match="not a whole number"):
            parse_units(text + suffix)


@PATIENT
@given(st.integers(0, 10**39))
def test_an_integer_is_parsed_exactly(number: int) -> None:
    assert parse_units(str(number)) == number


@PATIENT
@given(st.text(max_size=30))
def test_any_text_is_parsed_or_raises_a_value_error(text: str) -> None:
    try:
        units = parse_units(text)
    except ValueError:
        return
    assert units >= 0


def test_the_largest_ask_is_a_terabyte_of_one_mib_units() -> None:
    assert MAX_UNITS == 2**20 == 1_048_576
