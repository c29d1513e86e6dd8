"""The kinds of object the embedded API server keeps, and their place in its URLs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]  # Any: the store keeps whatever JSON its clients send, as etcd does
"""One API object. It is replaced, never changed, once it is stored."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource of API group `v1`."""

    name: str
    plural: str
    is_namespaced: bool

    def tagged(self, item: Object) -> Object:
        """The object as it is answered alone or in a watch; inside a list it carries no kind."""
        return {"kind": self.name, "apiVersion": "v1"} | item

    def key(self, namespace: str, name: str) -> str:
        """Objects are listed in this order, which is etcd's: `a-b/c` comes before `a/b`."""
        return f"{namespace}/{name}" if self.is_namespaced else name


POD = Kind("Pod", "pods", is_namespaced=True)
NODE = Kind("Node", "nodes", is_namespaced=False)
EVENT = Kind("Event", "events", is_namespaced=True)

KINDS = {kind.plural: kind for kind in (POD, NODE, EVENT)}
"""By the word in the URL."""
