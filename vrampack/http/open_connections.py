"""Which connections a listener keeps when there are too many: those with the most recent requests.

    a new connection --one too many--> the connection that has been without a request for longest is closed

So any number of idle connections or half-sent requests locks out no client: a probe is the newest connection, and is answered
long before it is the oldest. Connections that wait for their answer stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ClosableConnection(Protocol):
    """One connection of a listener."""

    @property
    def peer(self) -> str:
        """The other side's address, without its port."""

    @property
    def is_answering(self) -> bool:
        """Whether a whole request waits for its answer."""

    def close_for_room(self) -> None:
        """Close at once."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections a listener keeps."""

    total: int
    per_peer: int
    """The most for one address. Several clients may share one, so this bounds the cost of an address and refuses no client."""
    keep_alive_seconds: int
    """How long a connection may stay without a request."""


class OpenConnections:
    """The connections of one listener, in the order in which they last began a request."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._all: dict[ClosableConnection, None] = {}
        self._by_peer: dict[str, dict[ClosableConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add_connection(self, new: ClosableConnection) -> None:
        """Add a connection. If all others wait for an answer, it is closed itself."""
        of_peer = self._by_peer.setdefault(new.peer, {})
        of_peer[new] = self._all[new] = None
        if len(of_peer) > self._limits.per_peer:
            self._close_oldest(of_peer)
        if len(self._all) > self._limits.total:
            self._close_oldest(self._all)

    def note_request(self, connection: ClosableConnection) -> None:
        """The connection begins a request, so it is the newest now."""
        if connection not in self._all:
            return
        for crowd in (self._all, self._by_peer[connection.peer]):
            del crowd[connection]
            crowd[connection] = None

    def remove_connection(self, connection: ClosableConnection) -> None:
        """The connection is closed, or about to be. A second call changes nothing."""
        if connection not in self._all:
            return
        del self._all[connection]
        of_peer = self._by_peer[connection.peer]
        del of_peer[connection]
        if not of_peer:
            del self._by_peer[connection.peer]

    def _close_oldest(self, crowd: dict[ClosableConnection, None]) -> None:
        # The new one answers nothing yet, so there is always one to close.
        oldest = next(each for each in crowd if not each.is_answering)
        self.remove_connection(oldest)
        oldest.close_for_room()
