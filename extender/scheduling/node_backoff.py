"""Remembers where each pod was sent last, so that it is not sent straight back to a node on which it failed late.

Filter and prioritize name the best node, the same one every time. If the pod then fails there after we accepted it (a
volume, a permit, its Binding), it comes back to filter unbound, and would be sent there for ever. So a node on which
the pod failed ranks behind all others for this pod for a while, longer each time.

The scheduler does not say why a pod comes back. A gang whose permit times out looks like a volume that a node cannot attach, so
its members leave their best nodes, too: that costs some packing, and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from cachetools import LRUCache

from vrampack.backoff import Backoff

BACKOFF = Backoff(first_seconds=30.0, longest_seconds=300.0)
"""The scheduler's own backoff ends at 10 s: three further attempts go elsewhere."""
MAX_PODS = 65_536
"""How many pods are remembered: calls of filter with made-up pods must not fill the memory."""


@dataclass(slots=True)
class _NodeBackoffEntry:
    until: float = 0.0
    failures: int = 0

    @property
    def forgotten_at(self) -> float:
        """When its failures no longer count."""
        return self.until + BACKOFF.longest_seconds


@dataclass(slots=True)
class _PodBackoff:
    target_node: str = ""
    """The node to which the pod was sent last, until the outcome is known."""
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
        """Filter is called for the pod again: it was not bound on its last target, so back off that node."""
        backoff = self._pods.get(uid)
        if backoff is None or not backoff.target_node:
            return
        avoided = backoff.avoided_nodes.setdefault(backoff.target_node, _NodeBackoffEntry())
        avoided.failures += 1
        avoided.until = self._clock() + BACKOFF.compute_seconds(avoided.failures)
        backoff.target_node = ""

    def record_target(self, uid: str, node_name: str) -> None:
        """The pod is sent to this node, by an answer or by a bind call."""
        backoff = self._pods.get(uid)
        if backoff is None:
            backoff = self._pods[uid] = _PodBackoff()
        backoff.target_node = node_name

    def record_success(self) -> None:
        """Some pod was bound, so the API server takes Bindings."""
        self._succeeded_at = self._clock()

    def excuse_target(self, uid: str, *, is_once: bool = False) -> None:
        """The API server failed, which does not count against the node.

        Unless it took other Bindings since it last failed for this pod on this node: then the node is the cause. `is_once`
        is for an answer that a webhook may give for this node alone: then no other Binding need succeed in between.
        """
        backoff = self._pods.get(uid)
        if backoff is None:
            return
        is_same = backoff.excused_node == backoff.target_node
        is_repeated = is_same and (is_once or self._succeeded_at > backoff.excused_at)
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
