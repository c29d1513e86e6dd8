"""A reader over objects in memory, and where lists lie as files: what stands in for an API server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vrampack.cli.inspect.cluster import Resource
from vrampack.cli.inspect.errors import ExpiredListError

Object = dict[str, Any]  # Any: raw API objects


@dataclass
class PagedLists:
    """A `Reader`. After its first page a list is too old, `expires` times in all."""

    nodes: Sequence[object] = ()
    pods: Sequence[object] = ()
    page_size: int = 500
    expires: int = 0
    asked: list[str] = field(default_factory=list)

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        self.asked.append(resource)
        items = self.nodes if resource == "nodes" else self.pods
        for at in range(0, max(len(items), 1), self.page_size):
            if at and self.expires:
                self.expires -= 1
                raise ExpiredListError("too old")
            yield list_page(resource, items[at : at + self.page_size])


def list_page(resource: str, items: Sequence[object], token: str = "") -> bytes:
    """A v1 list as the API server writes it: the items last."""
    kind = "NodeList" if resource == "nodes" else "PodList"
    metadata = {"resourceVersion": "77"} | ({"continue": token} if token else {})
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": list(items)}).encode()
