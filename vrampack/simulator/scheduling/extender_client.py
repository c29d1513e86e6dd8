"""Calls the extender as a kube-scheduler does, and reads its answers the same way.

    filter      the names that pass, and why others do not; anything unreadable is an `ExtenderError`
    prioritize  a score per name; anything unreadable counts as no scores at all
    bind        success, or an `ExtenderError`; `{}` is success

Keys are read in any letter case, nulls are empty. Error messages that people often see (status, time-out, refused, closed) are
the real scheduler's; those about a malformed body are our own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.settings import SchedulerSettings

log = logging.getLogger(__name__)

IDLE_SECONDS = 90.0
"""How long a scheduler keeps an idle connection."""
SCORE_FACTOR = 10
"""Extenders score up to 10, plugins up to 100."""

_Read = TypeVar("_Read")


class ExtenderError(Exception):
    """The extender failed, or reports a failure. The text goes into the pod's condition."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """The nodes that pass, and the reasons for the others."""

    names: Sequence[str]
    reasons: Mapping[str, str]


class _FilterBody(msgspec.Struct, frozen=True):
    nodenames: list[str] | None = None
    nodes: dict[str, Any] | None = None  # Any: whole nodes, of which only the names are read
    failednodes: dict[str, str] | None = None
    failedandunresolvablenodes: dict[str, str] | None = None
    error: str | None = None


class _ScoreBody(msgspec.Struct, frozen=True):
    host: str | None = None
    score: int | None = None


class _BindBody(msgspec.Struct, frozen=True):
    error: str | None = None


class ExtenderClient:
    """One extender. Its connections live as long as the `async with`."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._url = settings.url_prefix.rstrip("/")

    async def __aenter__(self) -> Self:
        # No limit: binds run concurrently, each on its own connection.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=self._settings.http_timeout_seconds),
            skip_auto_headers=("Accept",),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def filter(self, pod: Object, names: Sequence[str]) -> ExtenderFilterResult:
        """Call filter. Raises `ExtenderError`, also for a returned name that was not sent."""
        if not self._settings.filter_verb:
            return ExtenderFilterResult(names, {})
        answer = _decode_answer(await self._post(self._settings.filter_verb, _build_args(pod, names)), _FilterBody)
        if answer.error:
            raise ExtenderError(answer.error)
        left = answer.nodenames if answer.nodenames is not None else _list_names(answer.nodes)
        asked = set(names)
        for name in left:
            if name not in asked:
                raise ExtenderError(
                    f'extender "{self._settings.url_prefix}" claims a filtered node "{name}" '
                    "which is not found in the input node list"
                )
        return ExtenderFilterResult(left, {**(answer.failednodes or {}), **(answer.failedandunresolvablenodes or {})})

    async def prioritize(self, pod: Object, names: Sequence[str]) -> dict[str, int]:
        """What the extender adds to each node's total. Never fails: scores that cannot be read are missing."""
        if not self._settings.prioritize_verb:
            return {}
        try:
            body = await self._post(self._settings.prioritize_verb, _build_args(pod, names))
            scores = _decode_list(body, _ScoreBody)
        except ExtenderError as error:
            log.warning("prioritize answer ignored pod=%s error=%s", pod["metadata"]["name"], error)
            return {}
        totals: dict[str, int] = {}
        for entry in scores:
            name = entry.host or ""
            totals[name] = totals.get(name, 0) + (entry.score or 0) * self._settings.weight * SCORE_FACTOR
        return totals

    async def bind(self, pod: Object, node: str) -> None:
        """Call bind; on return the extender reports that it has bound the pod. Raises `ExtenderError`."""
        metadata = pod["metadata"]
        args = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = _decode_answer(await self._post(self._settings.bind_verb, args), _BindBody)
        if answer.error:
            raise ExtenderError(answer.error)

    async def _post(self, verb: str, args: Object) -> bytes:
        url = f"{self._url}/{verb}"
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(url, data=msgspec.json.encode(args), headers=headers) as response:
                if response.status != HTTPStatus.OK:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                return await response.read()
        except TimeoutError as error:
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderError(f'Post "{url}": {why}') from error
        except aiohttp.ClientConnectorError as error:
            why = f"dial tcp {error.host}:{error.port}: connect: connection refused"
            raise ExtenderError(f'Post "{url}": {why}') from error
        except aiohttp.ServerDisconnectedError as error:
            raise ExtenderError(f'Post "{url}": EOF') from error
        except aiohttp.ClientError as error:
            raise ExtenderError(f'Post "{url}": {error}') from error


def _build_args(pod: Object, names: Sequence[str]) -> Object:
    """The arguments as recorded: no kind on the pod, nulls included, keys in this order."""
    shown = {key: pod[key] for key in ("metadata", "spec", "status") if key in pod}
    return {"Pod": shown, "Nodes": None, "NodeNames": list(names)}


def _list_names(nodes: Mapping[str, Any] | None) -> list[str]:  # Any: as above
    items = (nodes or {}).get("items") or []
    return [item["metadata"]["name"] for item in items]


def _decode_answer(body: bytes, kind: type[_Read]) -> _Read:
    found = _parse_json(body)
    return _convert_answer({} if found is None else _lower_keys(found), kind)


def _decode_list(body: bytes, kind: type[_Read]) -> list[_Read]:
    found = _parse_json(body)
    if found is not None and not isinstance(found, list):
        raise ExtenderError("the answer is no list")
    return [_convert_answer(_lower_keys(item), kind) for item in found or []]


def _parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    if not body.strip():
        raise ExtenderError("EOF")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ExtenderError(f"the answer is not JSON: {error}") from error


def _lower_keys(item: object) -> object:
    return {key.lower(): value for key, value in item.items()} if isinstance(item, dict) else item


def _convert_answer(item: object, kind: type[_Read]) -> _Read:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise ExtenderError(f"the answer cannot be read: {error}") from error
