"""A second thread that changes a call's memory between our copy and the driver's: it gains nothing.

VRAMPACK_KMOD_SWAPS=1000000 is the long form: so many rounds of each kind.
"""

from __future__ import annotations

import os
import re

import pytest

from tests.machine.kernels import Kernel
from tests.shim.kmod.shares import scale_for_kernel
from tests.shim.kmod.world import KmodWorld
from tests.support.polling import wait_until

ROUNDS = int(os.environ.get("VRAMPACK_KMOD_SWAPS", "2000"))
SECONDS_PER_ROUND = 0.005
MOST_TIMES = 20
"""So many times the rounds, until one call is refused: on a busy host the two processors of a machine seldom run at the same time."""
KINDS = ("size", "heap", "class", "wrapped", "status", "free")
REFUSED_KINDS = ("heap", "class", "wrapped", "free")
"""Where the call itself differs. What its pointer names is handed on as it was checked, and a reply is taken from the driver's copy."""


@pytest.mark.timeout(120 + ROUNDS * MOST_TIMES * SECONDS_PER_ROUND)
@pytest.mark.parametrize("kind", KINDS)
def test_the_driver_acts_on_the_checked_parameters(world: KmodWorld, kernel: Kernel, kind: str) -> None:
    rounds = scale_for_kernel(kernel, ROUNDS)
    most = rounds * MOST_TIMES if kind in REFUSED_KINDS else rounds
    place = world.limited("a", {0: 4301})
    words = ("swap", kind, str(rounds), str(most))
    ended = world.machine.run(*words, start=place.start, timeout=60 + most * SECONDS_PER_ROUND)
    assert (ended.code, ended.err) == (0, "")
    figures = re.fullmatch(r"(\d+) of (\d+) won, (\d+) refused, (\d+) given\n", ended.out)
    assert figures
    won, _, refused, given = map(int, figures.groups())
    assert won == 0, ended.out
    assert given > 0, ended.out
    assert refused > 0 or kind not in REFUSED_KINDS, ended.out
    wait_until(lambda: world.driver().cards[0].used == world.card("a").used == 0, what="that all is given back")
    world.forget()


def test_probes_are_set_while_a_container_is_limited(empty: KmodWorld) -> None:
    empty.load_driver()
    empty.load_shim()
    wait_until(lambda: empty.state()["copies"] == "unchecked", what="that the first look at the driver is over")
    place = empty.limited("a", {0: 4301})
    assert empty.state()["copies"] == "checked"
    with place.running("app", "100", "--hold") as program:
        program.wait_for_line("allocated 100 MiB")
        program.wait_for_line("holding")
        empty.forget()
        assert empty.state()["copies"] == "checked"
    wait_until(lambda: empty.state()["copies"] == "unchecked", what="that no container is limited any more")
