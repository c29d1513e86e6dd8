"""Long lists in pages of bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from vrampack.cli.ui.paging import select_page

CASES = {
    # 4+4 fit 10, the third would make 12
    "by weight": ([4, 4, 4], 1, (0, 2, 2)),
    "the rest": ([4, 4, 4], 2, (2, 3, 2)),
    "one that is too heavy stands alone": ([4, 99, 4], 2, (1, 2, 3)),
    "at most three": ([0] * 7, 2, (3, 6, 3)),
    "past the end is the last": ([4, 4, 4], 9, (2, 3, 2)),
    "before the start is the first": ([4, 4, 4], -1, (0, 2, 2)),
    "nothing is one empty page": ([], 1, (0, 0, 1)),
}


@pytest.mark.parametrize(("weights", "number", "want"), CASES.values(), ids=CASES)
def test_select_page_respects_budget_and_item_limit(
    weights: list[int], number: int, want: tuple[int, int, int]
) -> None:
    page = select_page(weights, number, budget=10, most_items=3)
    assert (page.start, page.stop, page.page_count) == want


@settings(deadline=None)
@given(some.lists(some.integers(0, 30), max_size=60), some.integers(1, 40), some.integers(1, 9))
def test_pages_cover_the_whole_list_and_stay_within_their_budget(weights: list[int], budget: int, most: int) -> None:
    count = select_page(weights, 1, budget=budget, most_items=most).page_count
    pages = [select_page(weights, number, budget=budget, most_items=most) for number in range(1, count + 1)]
    assert [at for page in pages for at in range(page.start, page.stop)] == list(range(len(weights)))
    for page in pages:
        part = weights[page.start : page.stop]
        assert len(part) <= most
        assert sum(part) <= budget or len(part) == 1
    assert (pages[0].previous_number, pages[-1].next_number) == (None, None)
