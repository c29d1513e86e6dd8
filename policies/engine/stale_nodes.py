"""The nodes that a follower of the ledger has yet to read again, taken a slice at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice


class StaleNodes(dict[str, None]):
    """Names in the order in which they were added; a dict, because asking whether it is empty must be cheap."""

    def take_slice(self, limit: int) -> Iterator[str]:
        """The first `limit` names at most. Each is removed when the caller asks for the next."""
        for name in list(islice(self, limit)):
            yield name
            del self[name]
