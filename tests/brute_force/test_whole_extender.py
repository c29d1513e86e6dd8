"""10,000 calls in `make test`, 300,000 in `make soak`, each compared with the judge; and the bugs that these calls find.

`VRAMPACK_BRUTE_FORCE_CALLS=300000` makes more; `VRAMPACK_BRUTE_FORCE_FIRST=381` begins at another seed. A seed that fails prints
its last steps, and is the same every time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from extender.metrics import ExtenderMetrics
from tests.brute_force.bugs import BUGS
from tests.brute_force.run import CALLS_PER_WORLD, run_world
from tests.brute_force.world import WrongAnswerError
from vrampack.cards.reasons import UnfitReason

CALLS = int(os.environ.get("VRAMPACK_BRUTE_FORCE_CALLS", "10000"))
FIRST = int(os.environ.get("VRAMPACK_BRUTE_FORCE_FIRST", "0"))
PARTS = 2
WORLDS_OF_A_TEST_RUN = 10_000 // CALLS_PER_WORLD
ENOUGH_WORLDS = 40
"""So many show every verb often, and every reason."""
RARE_REASONS = {UnfitReason.POD_LIMIT.value}
"""Shown by one world in thirty or so."""
UNASKED_REASONS = {UnfitReason.NOT_OFFERED.value, UnfitReason.NO_AMOUNT.value, UnfitReason.GROUP.value}
"""No pod of the API server can ask for more than memory yet, and no world has groups."""
FOUND_BY = {
    "free a written place when the bind is repeated": 71,
    "keep cards from equal pods only if lower": 36,
    "count no pod of a terminating one": 22,
    "answer from the cache whatever changed": 21,
    "take any success for a yes": 10,
    "keep cards from nobody": 9,
    "keep the cards of an earlier nomination": 9,
}
"""The seed to begin with, for bugs that only a late one finds; where it does not any more, all are run."""


@pytest.fixture(scope="module")
def metrics() -> ExtenderMetrics:
    return ExtenderMetrics("brute-force")


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_that_of_the_judge(metrics: ExtenderMetrics, part: int) -> None:
    calls: Counter[str] = Counter()
    reasons: set[str] = set()
    seeds = range(FIRST + part, FIRST + CALLS // CALLS_PER_WORLD, PARTS)
    for seed in seeds:
        world = run_world(seed, metrics)
        calls += world.calls
        reasons |= world.reasons
    assert calls.total() >= len(seeds) * CALLS_PER_WORLD
    if len(seeds) >= ENOUGH_WORLDS:
        assert min(calls[verb] for verb in ("filter", "prioritize", "bind")) * 12 > calls.total()
        assert {reason.value for reason in UnfitReason} - reasons - UNASKED_REASONS <= RARE_REASONS


def test_the_same_seed_gives_the_same_steps(metrics: ExtenderMetrics) -> None:
    traces = [run_world(1, metrics).trace for _ in range(2)]
    assert traces[0] == traces[1]


def run_worlds(seeds: Iterable[int], metrics: ExtenderMetrics) -> None:
    for seed in seeds:
        run_world(seed, metrics)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, metrics: ExtenderMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    seeds = sorted(range(WORLDS_OF_A_TEST_RUN), key=lambda seed: seed != FOUND_BY.get(name))
    with pytest.raises(WrongAnswerError):
        run_worlds(seeds, metrics)
