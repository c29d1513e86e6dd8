"""Which unbound pods are nominated to which node: the pods for which others were evicted there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, KeysView

from extender.state.pods_by_node import PodsByNode
from vrampack.cards.pod import Pod


class Nominations:
    """Pod uids by node, and the priorities of the pods."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pods_by_node = PodsByNode()
        self._seen_at: dict[str, float] = {}
        """By uid, when the pod's nomination to the node that it has now was first seen."""
        self._priorities: Counter[int] = Counter()

    def list_nodes(self) -> KeysView[str]:
        return self._pods_by_node.list_nodes()

    def list_on_node(self, name: str) -> Iterable[str]:
        return self._pods_by_node.list_pods(name)

    def get_seen_at(self, uid: str) -> float | None:
        """When the pod's nomination was first seen; None for a pod without one. One that ends and comes back is another."""
        return self._seen_at.get(uid)

    def list_priorities(self) -> KeysView[int]:
        """The distinct priorities of all these pods."""
        return self._priorities.keys()

    def replace_pod(self, known: Pod | None, pod: Pod | None) -> None:
        """Replace one state of a pod by another; None stands for no pod."""
        if known is not None and (before := get_nomination(known)):
            self._pods_by_node.remove_pod(before, known.uid)
            self._priorities -= Counter((known.priority,))
        if pod is not None and (now := get_nomination(pod)):
            self._pods_by_node.add_pod(now, pod.uid)
            self._priorities[pod.priority] += 1
        self._note_seen(known, pod)

    def _note_seen(self, known: Pod | None, pod: Pod | None) -> None:
        before, now = get_nomination(known), get_nomination(pod)
        if known is not None and before != now:
            self._seen_at.pop(known.uid, None)
        if pod is not None and now:
            self._seen_at.setdefault(pod.uid, self._clock())


def get_nomination(pod: Pod | None) -> str:
    """The node to which the pod is nominated while it is not bound; empty for none."""
    return "" if pod is None or pod.node_name or pod.is_terminating or pod.request is None else pod.node_to_keep


def has_equal_claim(known: Pod | None, pod: Pod | None) -> bool:
    """Whether both states of a pod, if nominated, have the same claim to kept cards."""
    return known is not None and pod is not None and (known.request, known.priority) == (pod.request, pod.priority)
