"""What is really used, as the annotation of a Lease says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vrampack.cards.card_usage import MAX_USAGE_BYTES, CardUsage, read_usage, write_usage
from vrampack.cards.node_annotations import MAX_CARDS, MAX_MEMORY_MIB
from vrampack.cards.records import RecordError

MIB = st.integers(0, MAX_MEMORY_MIB)
USAGE = st.builds(CardUsage, MIB, MIB, st.none() | st.integers(0, 100))
UUIDS = st.text("GPU-0123456789abcdef", min_size=1, max_size=40)


@given(st.dictionaries(UUIDS, USAGE, max_size=16))
def test_written_usage_is_read_back(cards: dict[str, CardUsage]) -> None:
    assert read_usage(write_usage(cards)) == cards


def test_the_most_cards_with_the_largest_figures_are_within_the_bound() -> None:
    cards = {f"MIG-{number:036}": CardUsage(MAX_MEMORY_MIB, MAX_MEMORY_MIB, 100) for number in range(MAX_CARDS + 1)}
    text = write_usage(cards)
    assert len(text) <= MAX_USAGE_BYTES
    assert len(read_usage(text)) == MAX_CARDS


@pytest.mark.parametrize(
    ("text", "problem"),
    {
        "": "not JSON",
        "[]": "not an object",
        '{"v":2,"cards":{}}': "v: 2",
        '{"v":1,"cards":[]}': "cards: not an object",
        '{"v":1,"cards":{"":{}}}': "not the uuid of a card",
        '{"v":1,"cards":{"a":7}}': "not the uuid of a card",
        '{"v":1,"cards":{"a":{"used_mib":-1,"peak_mib":0}}}': "used_mib: -1",
        '{"v":1,"cards":{"a":{"used_mib":1.5,"peak_mib":0}}}': "used_mib: 1.5",
        '{"v":1,"cards":{"a":{"used_mib":1}}}': "peak_mib: None",
        '{"v":1,"cards":{"a":{"used_mib":1,"peak_mib":1,"sm_percent":101}}}': "sm_percent: 101",
        " " * (MAX_USAGE_BYTES + 1): "characters",
    }.items(),
    ids=lambda text: ascii(text[:40]),
)
def test_unreadable_usage_has_a_reason(text: str, problem: str) -> None:
    with pytest.raises(RecordError) as caught:
        read_usage(text)
    assert problem in str(caught.value)
