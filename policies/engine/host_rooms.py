"""What hosts have left of CPU and main memory, rounded down, so that small changes have no effect."""

from __future__ import annotations

from policies.engine.change_log import NodeChangeLog
from vrampack.cards.host_room import HostResources

DEFAULT_STEP = HostResources(cpu_milli=500, memory_mib=1024)
"""Finer steps do not place better, and make more nodes differ. Measured: docs/packing.md."""


class HostRooms:
    """Rooms by node name. It has its own change log, because no verdict depends on it, only ranks do."""

    def __init__(self, step: HostResources = DEFAULT_STEP) -> None:
        self.rooms: dict[str, HostResources] = {}
        self.changes = NodeChangeLog()
        self._step = step

    def put_room(self, name: str, room: HostResources | None) -> None:
        """Replace what is known of the host; None forgets it."""
        rounded = None
        if room is not None:
            rounded = HostResources(*[left - left % step for left, step in zip(room, self._step, strict=True)])
        if self.rooms.get(name) == rounded:
            return
        if rounded is None:
            del self.rooms[name]
        else:
            self.rooms[name] = rounded
        self.changes.record_change(name)

    def round_up(self, request: HostResources) -> HostResources:
        """Round a request up to the most that it takes of a rounded room."""
        return HostResources(*[asked + -asked % step for asked, step in zip(request, self._step, strict=True)])
