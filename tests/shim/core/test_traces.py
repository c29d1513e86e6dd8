"""Random traces against a model of the driver: what is used is what exists, after every call, and nothing at the end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.shim.core.script import NotSoError
from tests.shim.core.traces import CoreTrace
from tests.shim.core.wire import BRANCHES, CoreWire


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("knows_cards", [False, True], ids=["only card", "cards"])
def test_the_used_figure_equals_the_memory_that_exists(runner: Path, branch: int, *, knows_cards: bool) -> None:
    seed = Random().randrange(1 << 32)
    try:
        CoreTrace(seed, CoreWire(branch), knows_cards=knows_cards).run(500).check(runner)
    except NotSoError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
