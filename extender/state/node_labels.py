"""The labels of nodes: which nodes a scheduler takes for one set, if it tries a group of pods on one set after the other."""

from __future__ import annotations

import sys

from vrampack.kube.objects import NodeObject


class NodeLabels:
    """All labels of all nodes: the next group may name any of them. A `NodeWatcher`."""

    def __init__(self) -> None:
        self._labels: dict[str, dict[str, str]] = {}

    def update_node(self, obj: NodeObject) -> None:
        labels = obj.metadata.labels or {}
        self._labels[obj.metadata.name] = {sys.intern(key): sys.intern(value) for key, value in labels.items()}

    def remove_node(self, name: str) -> None:
        self._labels.pop(name, None)

    def get_value(self, name: str, key: str) -> str:
        """Empty if the node has no such label."""
        return self._labels.get(name, {}).get(key, "")
