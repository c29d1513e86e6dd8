"""The nodes of a cluster, or one of them, as the API server has them now."""

from __future__ import annotations

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import UNDECODABLE, ListMeta, NodeObject

PAGE_SIZE = 500
"""The same as for the extender's own lists."""


class MissingNodeError(Exception):
    """There is no such node."""


class _NodePage(msgspec.Struct):
    metadata: ListMeta
    items: list[NodeObject] | None = None


async def read_nodes(api: Api, name: str | None, *, timeout_seconds: float) -> list[NodeObject]:
    """The named node or, without a name, all, sorted. Raises `MissingNodeError`, `RefusedError` or `NoAnswerError`."""
    if name is None:
        return await _list_nodes(api)
    node = await api.get_node(name, timeout_seconds=timeout_seconds)
    if node is None:
        raise MissingNodeError(f"there is no node {name}")
    return [node]


async def _list_nodes(api: Api) -> list[NodeObject]:
    found: list[NodeObject] = []
    token = ""
    while True:
        body = await api.list_page("nodes", limit=PAGE_SIZE, token=token)
        try:
            page = msgspec.json.decode(body, type=_NodePage)
        except UNDECODABLE as error:
            raise NoAnswerError(f"list nodes: {error}") from error
        found += page.items or ()
        token = page.metadata.continue_
        if not token:
            return sorted(found, key=lambda node: node.metadata.name)
