"""Reads for a bundle: lists of any kind page by page, logs, and pages of pods, each within a time and a size limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import msgspec

from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.diagnostic_client import DiagnosticApi
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.list_pager import ListPager
from vrampack.simulator.resource_kinds import Object

LIST_SECONDS = 30.0
POD_SECONDS = 10.0
"""Each log of an unreachable node takes this long."""
MAX_LISTED_OBJECTS = 200_000
LOG_LINES = 5000
LOG_BYTES = 1 << 20
METRICS_BYTES = 4 << 20

_PAGE = msgspec.json.Decoder(ListPage[Object])
_Decoded = TypeVar("_Decoded")
_Kept = TypeVar("_Kept")


class ConfigMapTexts(msgspec.Struct):
    """A v1.ConfigMap."""

    data: dict[str, str] = {}


class ApiServerVersion(msgspec.Struct, rename="camel"):
    """What `/version` says."""

    git_version: str = ""
    platform: str = ""


class BundleReader:
    """One cluster and the namespace of the product. Everything raises `RefusedError` or `NoAnswerError`."""

    def __init__(self, api: DiagnosticApi, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def read_version(self) -> ApiServerVersion:
        body = await self.api.read_path(
            "/version", resource="version", timeout_seconds=LIST_SECONDS, max_bytes=LOG_BYTES
        )
        return _decode(body, ApiServerVersion, "version")

    async def read_list(self, path: str, resource: str) -> AsyncIterator[list[Object]]:
        """The objects there, page by page, but no more than about the first `MAX_LISTED_OBJECTS`."""
        fetch = partial(self.api.read_list_page, path, resource=resource, timeout_seconds=LIST_SECONDS)
        decode = partial(decode_page, decoder=_PAGE, resource=resource)
        count = 0
        async for page in ListPager(fetch, decode, resource).read_pages():
            items = page.items or []
            yield items
            count += len(items)
            if count >= MAX_LISTED_OBJECTS:
                return

    async def list_path(self, path: str, resource: str, keep: Callable[[list[Object]], list[_Kept]]) -> list[_Kept]:
        """What `keep` leaves of each page."""
        return [kept async for items in self.read_list(path, resource) for kept in keep(items)]

    async def list_own(
        self, resource: str, keep: Callable[[list[Object]], list[_Kept]], *, group_path: str = "/api/v1"
    ) -> list[_Kept]:
        """The objects of the product's namespace."""
        path = f"{group_path}/namespaces/{quote(self.namespace, safe='')}/{resource}"
        return await self.list_path(path, resource, keep)

    async def list_newest_version(
        self, group: str, versions: tuple[str, ...], resource: str, keep: Callable[[list[Object]], list[_Kept]]
    ) -> list[_Kept]:
        """List by the first of these versions that the API server has."""
        for version in versions[:-1]:
            try:
                return await self.list_path(f"/apis/{group}/{version}/{resource}", resource, keep)
            except RefusedError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        return await self.list_path(f"/apis/{group}/{versions[-1]}/{resource}", resource, keep)

    async def read_config_map(self, name: str) -> Mapping[str, str]:
        path = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/configmaps/{quote(name, safe='')}"
        body = await self.api.read_path(
            path, resource="configmaps", timeout_seconds=LIST_SECONDS, max_bytes=METRICS_BYTES
        )
        return _decode(body, ConfigMapTexts, "configmaps").data

    async def read_log(self, pod: str, container: str, *, is_previous: bool) -> str:
        """The end of a container's log, or of its previous instance's."""
        query = {
            "container": container,
            "tailLines": str(LOG_LINES),
            "limitBytes": str(LOG_BYTES),
            "timestamps": "true",
            **({"previous": "true"} if is_previous else {}),
        }
        body = await self.api.read_path(
            f"{self._get_pod_path(pod)}/log",
            resource="pods/log",
            query=query,
            timeout_seconds=POD_SECONDS,
            max_bytes=LOG_BYTES,
        )
        return body.decode(errors="replace")

    async def read_metrics(self, pod: str, port: int) -> str:
        """What a pod serves under `/metrics`, through the API server."""
        body = await self.api.read_path(
            f"{self._get_pod_path(pod)}:{port}/proxy/metrics",
            resource="pods/proxy",
            timeout_seconds=POD_SECONDS,
            max_bytes=METRICS_BYTES,
        )
        return body.decode(errors="replace")

    def _get_pod_path(self, pod: str) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods/{quote(pod, safe='')}"


def _decode(body: bytes, kind: type[_Decoded], resource: str) -> _Decoded:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise NoAnswerError(f"get {resource}: not what it should be: {error}") from error
