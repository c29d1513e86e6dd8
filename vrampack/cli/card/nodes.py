"""The nodes of a cluster, or one of them, as the API server has them now."""

from __future__ import annotations

import msgspec

from vrampack.cli.errors import MissingObjectError
from vrampack.kube.client import Api
from vrampack.kube.list_page import ListPage
from vrampack.kube.list_pager import list_pages
from vrampack.kube.objects import NodeObject

_PAGE = msgspec.json.Decoder(ListPage[NodeObject])


async def read_nodes(api: Api, name: str | None, *, timeout_seconds: float) -> list[NodeObject]:
    """The named node or, without a name, all, sorted. Raises `MissingObjectError`, `RefusedError` or `NoAnswerError`."""
    if name is None:
        return await _list_nodes(api)
    node = await api.get_node(name, timeout_seconds=timeout_seconds)
    if node is None:
        raise MissingObjectError(f"there is no node {name}")
    return [node]


async def _list_nodes(api: Api) -> list[NodeObject]:
    found = [node async for page in list_pages(api, "nodes", _PAGE) for node in page.items or ()]
    return sorted(found, key=lambda node: node.metadata.name)
