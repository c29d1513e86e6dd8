"""Steps that many kept runs begin with: an extender that is ready, and one pod that it knows."""

from __future__ import annotations

from tests.simulation.step import Step

DONE, ON_ITS_WAY = 0, 70
"""What `how` of an answer means: see `network_steps._answer`."""


def answer(call: str, how: int = DONE) -> Step:
    return Step("answer", 0, how, f"e0 {call}")


def hears() -> Step:
    return Step("deliver", 0, 0, "e0 pods")


READY = (answer("list pods"), answer("watch pods"), answer("list nodes"), answer("watch nodes"))
ONE_POD = (*READY, Step("create", 0, 3, "p1"), hears())
"""One pod of 15 units, which is all that n0 has; the extender has heard of it."""
