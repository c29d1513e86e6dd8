"""Collects cyclic garbage between the verbs: by itself Python does it in the middle of one, whenever objects are created.

In the middle of a verb there are lists of thousands of names, and every collection of young objects visits each of them
several times: that took up to 19 ms. Between two verbs only long-lived objects are left, which takes a millisecond.
"""

from __future__ import annotations

import asyncio
import gc

PAUSE_SECONDS = 0.02
STARTING_THRESHOLDS = (10_000, 20, 50)
"""Python's own, until all is listed. Nearly all our objects are freed by reference counts; with the usual threshold of 700 a
fifth of a start was spent on walking pods that stay."""
SERVING_THRESHOLDS = (100_000, 10, 1_000)
"""Python's own, afterwards: only for a loop that never pauses."""
YOUNG_OBJECTS = 1_000
"""More of them than before the last collection, before there is another."""
YOUNG_COLLECTIONS = 1
"""Before the middle generation is collected as well."""
MIDDLE_COLLECTIONS = 2_000
"""Before all generations are, which may take 0.1 s: after millions of objects that came and stayed for a while."""


def freeze_objects() -> None:
    """Leave out of all collections what is there now: to walk the lists delayed a verb by 60 ms at 20,000 pods."""
    gc.freeze()
    gc.set_threshold(*SERVING_THRESHOLDS)


async def collect_garbage() -> None:
    """Collect whenever there is reason to, until cancelled."""
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        generation = choose_generation(*gc.get_count())
        if generation is not None:
            gc.collect(generation)


def choose_generation(young_objects: int, young_collections: int, middle_collections: int) -> int | None:
    """The oldest generation to collect, by `gc.get_count`; None: it is too early."""
    if young_objects < YOUNG_OBJECTS:
        return None
    if young_collections < YOUNG_COLLECTIONS:
        return 0
    return 1 if middle_collections < MIDDLE_COLLECTIONS else 2
