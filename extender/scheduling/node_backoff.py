"""Remembers where each pod was sent last, so that it is not sent at once to a node on which it failed late.

Filter and prioritize name the best node, the same one every time. If the pod then fails there after we said yes (a
volume, a permit, its Binding), it comes back to filter without having been bound, and would be sent there for ever. So
a node on which the pod failed ranks behind all others for this pod for a while, longer each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from cachetools import LRUCache

INITIAL_BACKOFF_SECONDS = 30.0
"""The scheduler's own backoff ends at 10 s: three further attempts go elsewhere."""
MAX_BACKOFF_SECONDS = 300.0
MAX_PODS = 65_536
"""How many pods are remembered: calls of filter with made-up pods must not fill the memory."""


@dataclass(slots=True)
class _NodeBackoffEntry:
    until: float = 0.0
    failures: int = 0

    @property
    def forgotten_at(self) -> float:
        """When its failures count no more."""
        return self.until + MAX_BACKOFF_SECONDS


@dataclass(slots=True)
class _PodBackoff:
    target_node: str = ""
    """The node named last, until the outcome is known."""
    excused_node: str = ""
    """The node for which the API server failed last."""
    excused_at: float = 0.0
    avoided_nodes: dict[str, _NodeBackoffEntry] = field(default_factory=dict)


class NodeBackoff:
    """The nodes on which each pod failed lately, by pod uid."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._succeeded_at = -inf
        self._pods: LRUCache[str, _PodBackoff] = LRUCache(maxsize=MAX_PODS)

    def back_off_target(self, uid: str) -> None:
        """Filter is called for the pod: it was not bound on the node that was named, or that bind was called for."""
        backoff = self._pods.get(uid)
        if backoff is None or not backoff.target_node:
            return
        avoided = backoff.avoided_nodes.setdefault(backoff.target_node, _NodeBackoffEntry())
        seconds = min(INITIAL_BACKOFF_SECONDS * 2.0 ** min(avoided.failures, 6), MAX_BACKOFF_SECONDS)
        avoided.until = self._clock() + seconds
        avoided.failures += 1
        backoff.target_node = ""

    def record_target(self, uid: str, node_name: str) -> None:
        """The pod is sent to this node."""
        backoff = self._pods.get(uid)
        if backoff is None:
            backoff = self._pods[uid] = _PodBackoff()
        backoff.target_node = node_name

    def record_success(self) -> None:
        """Some pod was bound: the API server takes Bindings."""
        self._succeeded_at = self._clock()

    def excuse_target(self, uid: str) -> None:
        """The API server failed, which says nothing against the node.

        Unless it took other Bindings since it failed for the same pod on the same node: then it fails for this node.
        """
        backoff = self._pods.get(uid)
        if backoff is None:
            return
        is_repeated = backoff.excused_node == backoff.target_node and self._succeeded_at > backoff.excused_at
        if not is_repeated:
            backoff.excused_node, backoff.excused_at = backoff.target_node, self._clock()
            backoff.target_node = ""

    def forget_pod(self, uid: str) -> None:
        """The pod was bound."""
        self._pods.pop(uid, None)

    def list_avoided_nodes(self, uid: str) -> frozenset[str]:
        """The nodes on which the pod failed lately."""
        backoff = self._pods.get(uid)
        if backoff is None or not backoff.avoided_nodes:
            return frozenset()
        now = self._clock()
        for name in [name for name, each in backoff.avoided_nodes.items() if now >= each.forgotten_at]:
            del backoff.avoided_nodes[name]
        return frozenset(name for name, each in backoff.avoided_nodes.items() if now < each.until)
