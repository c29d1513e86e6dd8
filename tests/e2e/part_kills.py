"""Parts of an installation that are killed while the others go on, and start again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from random import Random
from typing import Literal

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.kills import kill_running
from tests.e2e.release_shape import takes_a_forged_record
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import ManagedProcess

Part = Literal["extender", "scheduler", "pod", "API server"]
PARTS: tuple[Part, ...] = ("extender", "scheduler", "pod", "API server")
"""The pod is extender and scheduler at once."""

UNELECTED = ["--leader-elect=false"]
"""Of a scheduler that is killed: its Lease would be kept from the next one for 15 s."""


def draw_parts(random: Random, count: int) -> Iterator[Part]:
    """So many, each kind equally often, in random order."""
    return islice(chain.from_iterable(random.sample(PARTS, len(PARTS)) for _ in repeat(None)), count)


@dataclass(frozen=True, slots=True)
class MortalParts:
    """An installation whose scheduler is `UNELECTED`."""

    cluster: ControlPlane
    extender: ExtenderProgram
    scheduler: ManagedProcess

    def kill_and_start(self, part: Part) -> None:
        """Kill it, and start the same programs again: a pod's scheduler when the extender is ready."""
        if part == "API server":
            kill_running(self.cluster.apiserver)
            self.cluster.start_apiserver()
            self.cluster.wait_until(lambda: not takes_a_forged_record(self.cluster), what="the policies are in force")
            self.cluster.refusals.drain()  # before it has read its roles it refuses every account
            return
        killed = [self.extender.process] if part != "scheduler" else []
        killed += [self.scheduler] if part != "extender" else []
        for process in killed:
            kill_running(process)
        for process in killed:
            process.start()
            self.extender.wait_ready()
