"""One API server, called raw: paths and bytes. Every status is checked, every call has a time-out."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from typing import Literal, Protocol, get_args

from vrampack.kube.answers import build_answer_error, check_answer
from vrampack.kube.api_request import MERGE_PATCH, ApiRequest, PodGroupResource, build_path
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import (
    BrokenWatchError,
    ForeignAnswerError,
    NoAnswerError,
    RefusedError,
    SilentWatchError,
    UnknownPathError,
    UnreachableError,
    UnsentError,
)
from vrampack.kube.http_client import HttpClient
from vrampack.kube.http_connection import SilentServerError, StreamedReply
from vrampack.kube.list_page import MAX_OBJECT_BYTES, build_page_query
from vrampack.kube.watch_reader import ByteStream

Resource = Literal["pods", "nodes", "namespaces", "leases"] | PodGroupResource

OPTIONAL_RESOURCES = frozenset({"deviceclasses", "resourceslices", *get_args(PodGroupResource)})
"""Many API servers have none of these. That they do not know such a path is a refusal with 404."""
DEFAULT_TIMEOUT_SECONDS = 30.0

_VERBS = {"GET": "list", "POST": "create", "PUT": "update", "PATCH": "patch"}
FOREIGN_CODE = -1
"""In place of the HTTP status of an answer that is not the API server's."""


def label_code(code: int) -> str:
    """The label of a metric for this code."""
    return "foreign" if code == FOREIGN_CODE else str(code)


class CallObserver(Protocol):
    """Called after every call; `code` is the HTTP status, `0` when there was no answer, or `FOREIGN_CODE`."""

    def __call__(self, *, verb: str, resource: str, code: int, seconds: float) -> None: ...


def ignore_call(*, verb: str, resource: str, code: int, seconds: float) -> None:
    """For programs without metrics, such as commands that make a few calls and end."""


class ApiCaller:
    """Sends calls, checks their answers, and tells observers of both. `client.py` has the calls."""

    def __init__(
        self, credentials: Credentials, *, observe: CallObserver = ignore_call, user_agent: str = "vrampack"
    ) -> None:
        self._token = credentials.token
        self._client = HttpClient(credentials.configuration)
        self._user_agent = user_agent
        self._observers = [observe]

    def add_observer(self, observe: CallObserver) -> None:
        """Call this one as well after every call."""
        self._observers.append(observe)

    async def close(self) -> None:
        await self._token.close()
        await self._client.close()

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int,
        token: str = "",
        max_bytes: int = MAX_OBJECT_BYTES,
        field_selector: str = "",
        namespace: str = "",
    ) -> bytes:
        """One page of all objects of the cluster, of a namespace, or of those selected, but no more than `max_bytes` of it.

        The API server reads it from its store, never from a stale cache. `ListPager` reads a whole list.
        """
        query = build_page_query(limit, token) | build_selector_query(field_selector)
        return await self._call("GET", build_path(resource, namespace), resource, query=query, max_bytes=max_bytes)

    def observe_foreign_page(self, resource: Resource) -> None:
        """A reader of `list_page` found that its page is not the API server's, which counts as one more call."""
        self._observe(verb="list", resource=resource, code=FOREIGN_CODE, started=time.monotonic())

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        server_seconds: int,
        silence_seconds: float,
        field_selector: str = "",
        namespace: str = "",
    ) -> AsyncIterator[ByteStream]:
        """A watch from `resource_version`; the stream has one JSON event per line, bookmarks included.

        The server ends it after `server_seconds`. A watch that is silent for `silence_seconds` is abandoned with a
        `SilentWatchError`, because a half-open connection looks exactly like a quiet one. An open watch that is cut raises
        `BrokenWatchError`, a refused connection `UnreachableError`.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_seconds),
        } | build_selector_query(field_selector)
        request = ApiRequest("GET", build_path(resource, namespace), query, silence_seconds=silence_seconds)
        started = time.monotonic()
        code = 0
        try:
            with closing(await self._send(request)) as reply:
                code = reply.status
                if code != HTTPStatus.OK:
                    body = await reply.read_body(MAX_OBJECT_BYTES)
                    raise build_answer_error(code, body, retry_after=reply.retry_after)
                yield reply.content
        except SilentServerError as error:
            raise SilentWatchError(f"watch {resource}: nothing received for {silence_seconds:g} s") from error
        except OSError as error:
            text = f"watch {resource}: {_describe_error(error)}"
            if code == HTTPStatus.OK:
                raise BrokenWatchError(text) from error
            raise (UnreachableError if error.errno == errno.ECONNREFUSED else NoAnswerError)(text) from error
        except ForeignAnswerError as error:
            if isinstance(error, UnknownPathError) and resource in OPTIONAL_RESOURCES:
                raise RefusedError(HTTPStatus.NOT_FOUND, "", str(error)) from error
            code = FOREIGN_CODE
            raise
        finally:
            self._observe(verb="watch", resource=resource, code=code, started=started)

    def _observe(self, *, verb: str, resource: str, code: int, started: float) -> None:
        seconds = time.monotonic() - started
        for observe in self._observers:
            observe(verb=verb, resource=resource, code=code, seconds=seconds)

    def _build_headers(self, request: ApiRequest) -> dict[str, str]:  # noqa: ARG002 - for `NodeApi`
        """The additional headers of a call."""
        return {}

    async def _get_object(self, path: str, resource: str, kind: str, name: str, timeout_seconds: float) -> bytes | None:
        """One object as the API server has it now; None when the API server says that this very object is not there."""
        try:
            return await self._call("GET", path, resource, verb="get", wanted=(kind, name), seconds=timeout_seconds)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            if error.subject != f"{resource}/{name}":
                raise NoAnswerError(f"get {resource}: {error}") from error
            return None

    async def _call(  # noqa: PLR0913 - an HTTP call
        self,
        method: str,
        path: str,
        resource: str,
        *,
        verb: str = "",
        wanted: tuple[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        seconds: float = DEFAULT_TIMEOUT_SECONDS,
        patch: str = MERGE_PATCH,
        max_bytes: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        """The body of the answer, which must be an object of the `wanted` kind and name; None for a list, which its reader checks.

        `verb` is the API server's word for the call where the method does not tell it.
        """
        verb = verb or _VERBS[method]
        request = ApiRequest(method, path, query or {}, body, patch)
        started = time.monotonic()
        code = 0
        try:
            async with asyncio.timeout(seconds):
                with closing(await self._send(request)) as reply:
                    code = reply.status
                    answer = await reply.read_body(max_bytes)
            check_answer(f"{verb} {resource}", code, answer, wanted, retry_after=reply.retry_after)
        except OSError as error:
            code = 0
            if not request.is_sent:
                why = str(error) or f"no connection was free or could be made within {seconds:g} s"
                raise UnsentError(f"{verb} {resource}: not sent: {why}") from error
            raise NoAnswerError(f"{verb} {resource}: {_describe_error(error)}") from error
        except ForeignAnswerError as error:
            if isinstance(error, UnknownPathError) and resource in OPTIONAL_RESOURCES:
                raise RefusedError(HTTPStatus.NOT_FOUND, "", str(error)) from error
            code = FOREIGN_CODE
            raise
        finally:
            self._observe(verb=verb, resource=resource, code=code, started=started)
        return answer

    async def _send(self, request: ApiRequest) -> StreamedReply:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent} | self._build_headers(request)
        if authorization := self._token.get_authorization():
            headers["Authorization"] = authorization
        headers["Content-Type"] = request.content_type
        reply = await self._client.send(request, headers)
        if authorization and reply.status == HTTPStatus.UNAUTHORIZED:
            self._token.note_unauthorized(authorization)
        return reply


def build_selector_query(field_selector: str) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _describe_error(error: BaseException) -> str:
    """The text of an error; time-outs have none of their own."""
    return str(error) or type(error).__name__
