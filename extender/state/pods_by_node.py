"""Pod uids by node name. A node without pods has no entry: names of deleted nodes must not pile up."""

from __future__ import annotations

from collections.abc import Collection, KeysView


class PodsByNode:
    """Which pods are on each node; the owner defines what *on* means."""

    def __init__(self) -> None:
        self._uids: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._uids)

    def list_nodes(self) -> KeysView[str]:
        """The nodes with a pod; a live view."""
        return self._uids.keys()

    def list_pods(self, node_name: str) -> Collection[str]:
        return self._uids.get(node_name, ())

    def add_pod(self, node_name: str, uid: str) -> None:
        self._uids.setdefault(node_name, set()).add(uid)

    def remove_pod(self, node_name: str, uid: str) -> None:
        """Remove the pod if it is there."""
        uids = self._uids.get(node_name)
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._uids[node_name]
