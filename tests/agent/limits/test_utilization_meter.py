"""Compute by container: samples of processes, and the cgroups that they are in."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.utilization_meter import MeasuredUtilization, UtilizationMeter
from vrampack.agent.nvml.driver import GpuUtilization

OWNERS = {7: CgroupOwner("a", "c1"), 8: CgroupOwner("a", "c1"), 9: CgroupOwner("b", "c2"), 10: None}
LOST_PID = 11
"""Its cgroup cannot be read."""


class SampledDriver:
    def __init__(self, *cards: GpuUtilization) -> None:
        self.cards = cards

    async def read_utilization(self) -> Sequence[GpuUtilization]:
        return self.cards


def find_owner(pid: int) -> CgroupOwner | None:
    if pid == LOST_PID:
        raise OSError(errno.EIO, "not today")
    return OWNERS[pid]


async def test_utilization_is_summed_by_container_and_card_up_to_100_percent() -> None:
    """7 + 8 are 130 of one container; 9 is another's; 10 and 11 are in no pod and count for the card alone."""
    driver = SampledDriver(
        GpuUtilization("GPU-a", {7: 60, 8: 70, 9: 5}), GpuUtilization("GPU-b", {9: 20, 10: 3, LOST_PID: 4})
    )
    assert await UtilizationMeter(driver, find_owner).measure_utilization() == MeasuredUtilization(
        {"GPU-a": 100, "GPU-b": 27},
        {("a", "c1", "GPU-a"): 100, ("b", "c2", "GPU-a"): 5, ("b", "c2", "GPU-b"): 20},
    )
