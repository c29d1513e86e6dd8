"""Cyclic garbage is collected between the verbs."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from extender.garbage_collection import YOUNG_OBJECTS, choose_generation, collect_garbage


@pytest.mark.parametrize(
    ("counts", "want"),
    [((999, 1, 2000), None), ((1000, 0, 2000), 0), ((1000, 1, 1999), 1), ((1000, 1, 2000), 2)],
    ids=str,
)
def test_older_generations_are_collected_less_often(counts: tuple[int, int, int], want: int | None) -> None:
    assert choose_generation(*counts) == want


@pytest.fixture
def _without_automatic_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Knot:
    """Garbage once nothing else refers to it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("_without_automatic_collections")
async def test_cycles_that_nothing_refers_to_are_collected() -> None:
    collected = asyncio.Event()
    weakref.finalize(Knot(), collected.set)
    kept = [Knot() for _ in range(YOUNG_OBJECTS)]
    collecting = asyncio.create_task(collect_garbage())
    async with asyncio.timeout(30):
        await collected.wait()
    collecting.cancel()
    assert len(kept) == YOUNG_OBJECTS
