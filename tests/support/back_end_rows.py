"""The table of back ends with a simulated kernel module and with the library's files in a folder of the test."""

from __future__ import annotations

from tests.support.simulated_kmod import SimulatedKmod
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.kmod.row import KmodRow
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.limits.preload.row import PreloadRow


def make_rows(module: SimulatedKmod, preload_paths: PreloadPaths) -> tuple[BackEndRow, ...]:
    """In the order of the real table."""
    simulated: dict[str, BackEndRow] = {"kmod": KmodRow(module.open_nodes), "preload": PreloadRow(preload_paths)}
    return tuple(simulated.get(row.mode, row) for row in BACK_ENDS)
