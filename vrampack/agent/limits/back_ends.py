"""The table of all back ends, the strongest first: `auto` takes the first that works on the node.

A new back end is a package or module with its row, one entry here, and its word in the setting `enforcement`.
"""

from __future__ import annotations

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.kmod.row import KmodRow
from vrampack.agent.limits.native.row import NativeRow
from vrampack.agent.limits.no_limits import NoLimitsRow
from vrampack.agent.limits.overuse_monitor import OveruseMonitorRow
from vrampack.agent.limits.preload.row import PreloadRow

BACK_ENDS: tuple[BackEndRow, ...] = (NativeRow(), KmodRow(), PreloadRow(), OveruseMonitorRow(), NoLimitsRow())
