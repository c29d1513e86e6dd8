"""Collects cyclic garbage between verbs: left alone, Python collects in the middle of one, whenever objects are created.

In the middle of a verb there are lists of thousands of names, and every collection of young objects visits each of them
several times, which took up to 19 ms. Between two verbs only long-lived objects are left, and it takes a millisecond.
"""

from __future__ import annotations

import asyncio
import gc

PAUSE_SECONDS = 0.02
STARTING_THRESHOLDS = (10_000, 20, 50)
"""Of Python's own collector, until the lists are complete. Reference counts free nearly all our objects; with the usual
threshold of 700 a fifth of the start went into walking pods that stay."""
SERVING_THRESHOLDS = (100_000, 10, 1_000)
"""Of Python's own collector afterwards: it only collects when the loop never pauses."""
YOUNG_OBJECTS = 1_000
"""How many new objects trigger a collection."""
YOUNG_COLLECTIONS = 1
"""Young collections before the middle generation is collected as well."""
MIDDLE_COLLECTIONS = 2_000
"""Middle collections before all generations are collected, which may take 0.1 s: after millions of objects."""


def freeze_objects() -> None:
    """Exclude everything that exists now from all collections: walking the lists delayed a verb by 60 ms at 20,000 pods."""
    gc.freeze()
    gc.set_threshold(*SERVING_THRESHOLDS)


async def collect_garbage() -> None:
    """Collect whenever `choose_generation` names a generation, until cancelled."""
    while True:
        await asyncio.sleep(PAUSE_SECONDS)
        generation = choose_generation(*gc.get_count())
        if generation is not None:
            gc.collect(generation)


def choose_generation(young_objects: int, young_collections: int, middle_collections: int) -> int | None:
    """The oldest generation to collect, given the counts of `gc.get_count`; None: none yet."""
    if young_objects < YOUNG_OBJECTS:
        return None
    if young_collections < YOUNG_COLLECTIONS:
        return 0
    return 1 if middle_collections < MIDDLE_COLLECTIONS else 2
