"""Which pods the reader may list: those of the cluster, or of some namespaces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from vrampack.cli.explain.cluster import ALL_NAMESPACES, list_items
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.objects import NamespaceObject

_FIRST_POD = msgspec.json.Decoder(ListPage[msgspec.Raw])
_NAMESPACE = msgspec.json.Decoder(NamespaceObject)


@dataclass(frozen=True, slots=True)
class PodScope:
    """Where pods are listed."""

    namespaces: tuple[str, ...] = ALL_NAMESPACES
    is_complete: bool = True
    """Whether these are the pods of all namespaces."""

    @property
    def is_empty(self) -> bool:
        return not self.namespaces


async def find_pod_scope(api: Api, wanted: Sequence[str] = (), own_namespace: str = "") -> PodScope:
    """The namespaces, of `wanted` or of all if empty, whose pods may be listed; `own_namespace` if all may not be listed.

    Raises `RefusedError`, `NoAnswerError`.
    """
    if not wanted and await _may_list_pods(api, ""):
        return PodScope()
    found = () if wanted else await _list_namespaces(api)
    named = wanted or found or ([own_namespace] if own_namespace else ())
    listable = tuple([name for name in dict.fromkeys(named) if await _may_list_pods(api, name)])
    return PodScope(listable, is_complete=bool(found) and len(listable) == len(found))


async def _may_list_pods(api: Api, namespace: str) -> bool:
    try:
        decode_page(await api.list_page("pods", namespace=namespace, limit=1), _FIRST_POD, "pods")
    except RefusedError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return False
        raise
    return True


async def _list_namespaces(api: Api) -> Collection[str]:
    """None where these may not be listed either."""
    try:
        return [_NAMESPACE.decode(raw).metadata.name async for raw in list_items(api, "namespaces")]
    except RefusedError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return ()
        raise
    except UNDECODABLE as error:
        raise NoAnswerError(f"list namespaces: {error}") from error
