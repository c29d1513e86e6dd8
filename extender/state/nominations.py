"""Which unbound pods are nominated to which node: pods for which others were evicted there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, KeysView

from vrampack.cards.pod import Pod


class Nominations:
    """Pod uids by node, and the priorities of the pods."""

    def __init__(self) -> None:
        self._uids_by_node: defaultdict[str, set[str]] = defaultdict(set)
        """No empty sets."""
        self._priorities: Counter[int] = Counter()

    def list_nodes(self) -> KeysView[str]:
        return self._uids_by_node.keys()

    def list_on_node(self, name: str) -> Iterable[str]:
        return self._uids_by_node.get(name, ())

    def list_priorities(self) -> KeysView[int]:
        """Of all these pods; no counts of none."""
        return self._priorities.keys()

    def replace_pod(self, known: Pod | None, pod: Pod | None) -> None:
        """The pod is shown in another state than before; None: it is not there."""
        if known is not None and (before := get_nomination(known)):
            self._uids_by_node[before].discard(known.uid)
            if not self._uids_by_node[before]:
                del self._uids_by_node[before]
            self._priorities -= Counter((known.priority,))
        if pod is not None and (now := get_nomination(pod)):
            self._uids_by_node[now].add(pod.uid)
            self._priorities[pod.priority] += 1


def get_nomination(pod: Pod | None) -> str:
    """The node to which the pod is nominated while it is not bound; empty for none."""
    return "" if pod is None or pod.node_name or pod.is_terminating or pod.request is None else pod.nominated_node
