"""How many units a share of a card is, once the card is counted in other units than when the pod was bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrampack.cards.holding import count_share_units
from vrampack.cards.node import CardFacts, Share
from vrampack.cards.units import compute_limit_mib

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

V100 = 16130

CASES: dict[str, tuple[Share, int, int]] = {
    "the same units": (Share(4, card_units=15), 15, 4),
    # a unit of 256 MiB instead of 1024: 12 x 63 / 15 = 50.4
    "a smaller unit": (Share(12, card_units=15), 63, 51),
    # 48 x 15 / 63 = 11.4
    "a larger unit": (Share(48, card_units=63), 15, 12),
    # units_per_card: 10 x 15 / 14 = 10.7
    "one unit more": (Share(10, card_units=14), 15, 11),
    "all units": (Share(15, card_units=15), 63, 63),
    "a whole card": (Share(15, whole=True, card_units=15), 63, 63),
    "a whole card of a legacy node": (Share(15, index=0, whole=True), 63, 63),
    # 16130 x 12 / 15 = 12904
    "an older record": (Share(12, limit=(12, 12904)), 63, 51),
    "an older record of a card that did not change": (Share(12, limit=(12, 12904)), 15, 12),
    # 512 MiB are kept back: 15618 x 12 / 15 = 12494, and of no number of units 12 are 12494 of 16130 MiB
    "an older record under a reserve": (Share(12, limit=(12, 12494)), 15, 12),
    # 12 containers of 1 unit: 16130 / 15 = 1075.3
    "an older record of several containers": (Share(12, limit=(1, 1075)), 63, 51),
    # 1 of 1467 to 1613 units is 10 MiB; of 1467 it is most: 1 x 63 / 1467 = 0.04
    "an older record of a tiny share": (Share(1, limit=(1, 10)), 63, 1),
    "an older record of a whole card": (Share(15, whole=True, limit=(15, V100)), 63, 63),
    "a limit of nothing": (Share(12, limit=(12, 0)), 63, 12),
    "a record of gpushare": (Share(12, index=0), 63, 12),
}


@pytest.mark.parametrize(("share", "units_now", "want"), CASES.values(), ids=CASES)
def test_a_share_counts_in_the_units_that_its_card_has_now(share: Share, units_now: int, want: int) -> None:
    assert count_share_units(share, CardFacts(0, units_now, V100, "GPU-0")) == want


@PATIENT
@given(
    memory_mib=st.integers(1, 200_000),
    parts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    units_now=st.integers(1, 400),
    is_older=st.booleans(),
)
def test_after_a_change_of_units_new_pods_get_only_memory_that_nobody_was_promised(
    memory_mib: int, parts: list[int], units_now: int, *, is_older: bool
) -> None:
    """Pods filled the card, then it was counted in other units, and what is free by that count goes to one more pod."""
    limits = [compute_limit_mib(memory_mib, part, sum(parts)) for part in parts]
    shares = [
        Share(part, limit=(part, mib)) if is_older else Share(part, card_units=sum(parts))
        for part, mib in zip(parts, limits, strict=True)
    ]
    for kept in range(len(parts) + 1):
        held = sum(count_share_units(share, CardFacts(0, units_now, memory_mib, "GPU-0")) for share in shares[:kept])
        new_mib = compute_limit_mib(memory_mib, max(0, units_now - held), units_now)
        assert sum(limits[:kept]) + new_mib <= memory_mib
