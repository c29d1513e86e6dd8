"""Selects the back end of this node: the one that the setting names, or the first of the table that works here.

A named back end that cannot work here is refused, with everything that is missing: a node whose operator asked for a limit
must not run without one because a driver is old.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.limits.node_context import NodeContext

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected, and why."""

    row: BackEndRow
    capabilities: NodeCapabilities
    reason: str


def select_back_end(
    mode: str, capabilities: NodeCapabilities, context: NodeContext, rows: Iterable[BackEndRow]
) -> Selection:
    """Select a back end. Raises `ImpossibleBackEndError` for a name that is unknown or cannot work on this node."""
    rows = tuple(rows)
    candidates = [row for row in rows if (row.is_automatic if mode == AUTO else row.mode == mode)]
    if not candidates:
        raise ImpossibleBackEndError(
            f"no back end {mode!r}; there are {', '.join([AUTO, *(row.mode for row in rows)])}"
        )
    obstacles: list[str] = []
    for row in candidates:
        obstacle = row.find_obstacle(capabilities, context)
        if not obstacle:
            why = "; ".join(obstacles) or f"driver {capabilities.driver_version}"
            return Selection(row, capabilities, why if mode == AUTO else "asked for by name")
        obstacles.append(f"{row.mode} {'neither' if obstacles else 'cannot work here'}: {obstacle}")
    raise ImpossibleBackEndError(f"back end {'; '.join(obstacles)}")
