"""Where each pod was sent last: a node on which it fails late is not named to it again at once.

Filter and prioritize name the best node, the same one every time. If the pod then fails there after we said yes (a
volume, a permit, its Binding), it comes back to filter without having been bound, and would be sent there for ever. So
a node that was named in vain ranks behind all others for this pod for a while, longer each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

FIRST_AVOIDED_SECONDS = 30.0
"""The scheduler's own back-off ends at 10 s: three further attempts go elsewhere."""
LONGEST_AVOIDED_SECONDS = 300.0
MOST_PODS = 65_536
"""Of whom this is remembered; whoever calls filter with made-up pods must not fill the memory."""


@dataclass(slots=True)
class _Avoided:
    until: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class _Tries:
    named: str = ""
    """The node named last, until it is known what came of it."""
    avoided: dict[str, _Avoided] = field(default_factory=dict)


class Attempts:
    """What came of the nodes that were named, by pod uid."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tries: LRUCache[str, _Tries] = LRUCache(maxsize=MOST_PODS)

    def asked(self, uid: str) -> None:
        """Filter is called for the pod: it was not bound where it was sent last."""
        tries = self._tries.get(uid)
        if tries is None or not tries.named:
            return
        avoided = tries.avoided.setdefault(tries.named, _Avoided())
        seconds = min(FIRST_AVOIDED_SECONDS * 2.0 ** min(avoided.failures, 6), LONGEST_AVOIDED_SECONDS)
        avoided.until = self._clock() + seconds
        avoided.failures += 1
        tries.named = ""

    def named(self, uid: str, node_name: str) -> None:
        """The pod is sent to this node."""
        tries = self._tries.get(uid)
        if tries is None:
            tries = self._tries[uid] = _Tries()
        tries.named = node_name

    def bound(self, uid: str) -> None:
        """Nothing failed."""
        self._tries.pop(uid, None)

    def avoided(self, uid: str) -> frozenset[str]:
        """The nodes on which the pod failed lately."""
        tries = self._tries.get(uid)
        if tries is None or not tries.avoided:
            return frozenset()
        now = self._clock()
        return frozenset(name for name, each in tries.avoided.items() if now < each.until)
