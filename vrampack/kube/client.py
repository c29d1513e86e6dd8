"""One API server, called raw: paths and bytes. Every status is checked, every call has a time-out."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from typing import Literal, Protocol
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from vrampack.kube.aio_client import Configuration
from vrampack.kube.answers import build_answer_error, check_answer
from vrampack.kube.credentials import Credentials
from vrampack.kube.direct_client import DirectClient
from vrampack.kube.errors import (
    BrokenWatchError,
    ForeignAnswerError,
    NoAnswerError,
    RefusedError,
    SilentWatchError,
    UnknownPathError,
    UnreachableError,
)
from vrampack.kube.http_client import RETRY_AFTER, AiohttpClient, HttpClient, ServerReply
from vrampack.kube.http_connection import SilentServerError
from vrampack.kube.list_page import MAX_OBJECT_BYTES, ListPage, build_page_query, decode_page
from vrampack.kube.objects import UNDECODABLE, NodeObject, PodObject, ResourceSliceObject
from vrampack.kube.watch_reader import ByteStream

Resource = Literal["pods", "nodes", "namespaces", "leases"]

DEFAULT_TIMEOUT_SECONDS = 30.0
MERGE_PATCH = "application/merge-patch+json"
SUCCESS = ("Status", "")
"""The answer to a call that has an effect and makes no object."""
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""Merges lists by name or type, so that one condition or webhook of several can be changed."""


_SLICES = msgspec.json.Decoder(ListPage[ResourceSliceObject])
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


class Api:
    """The calls that this project makes, and no others."""

    def __init__(
        self, credentials: Credentials, *, observe: CallObserver = ignore_call, user_agent: str = "vrampack"
    ) -> None:
        configuration = credentials.configuration
        self._token = credentials.token
        self._aiohttp = AiohttpClient(configuration)
        self._direct = _choose_direct_client(configuration, self._aiohttp)
        """For what is sent most often: Bindings and watches."""
        self._user_agent = user_agent
        self._observers = [observe]

    def add_observer(self, observe: CallObserver) -> None:
        """Call this one as well after every call."""
        self._observers.append(observe)

    async def close(self) -> None:
        await self._token.close()
        await self._direct.close()
        await self._aiohttp.close()

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
        query = build_page_query(limit, token) | _build_selector_query(field_selector)
        path = _collection_path(resource, namespace)
        return await self._call("GET", path, verb="list", resource=resource, query=query, max_bytes=max_bytes)

    def observe_foreign_page(self, resource: Resource) -> None:
        """A reader of `list_page` found that its page is not the API server's, which counts as one more call."""
        self._observe(verb="list", resource=resource, code=FOREIGN_CODE, started=time.monotonic())

    async def list_device_classes(self, *, limit: int, token: str, max_bytes: int, timeout_seconds: float) -> bytes:
        """One page of the cluster's device classes, as `list_page`. `RefusedError` with 404: this API server has no such kind."""
        return await self._list_resources(
            "deviceclasses", build_page_query(limit, token), timeout_seconds, max_bytes=max_bytes
        )

    async def list_resource_slices(
        self, *, node: str, driver: str, timeout_seconds: float
    ) -> list[ResourceSliceObject]:
        """The slices of one DRA driver on one node, from the API server's cache. 404: this API server has no such kind."""
        query = {"resourceVersion": "0"} | _build_selector_query(f"spec.nodeName={node},spec.driver={driver}")
        body = await self._list_resources("resourceslices", query, timeout_seconds)
        return list(decode_page(body, _SLICES, "resourceslices").items or ())

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
        } | _build_selector_query(field_selector)
        path = _collection_path(resource, namespace)
        started = time.monotonic()
        code = 0
        try:
            response = await self._send(self._direct, "GET", path, query, None, silence_seconds=silence_seconds)
            try:
                code = response.status
                if code != HTTPStatus.OK:
                    raise build_answer_error(
                        code, await _read_body(response), retry_after=response.headers.get(RETRY_AFTER, "")
                    )
                yield response.content
            finally:
                response.close()
        except (aiohttp.SocketTimeoutError, SilentServerError) as error:
            raise SilentWatchError(f"watch {resource}: nothing received for {silence_seconds:g} s") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"watch {resource}: {_describe_error(error)}"
            if code == HTTPStatus.OK:
                raise BrokenWatchError(text) from error
            is_refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
            raise (UnreachableError if is_refused else NoAnswerError)(text) from error
        except ForeignAnswerError:
            code = FOREIGN_CODE
            raise
        finally:
            self._observe(verb="watch", resource=resource, code=code, started=started)

    async def get_pod(self, namespace: str, name: str, *, timeout_seconds: float) -> PodObject | None:
        """One pod as the API server has it now; None when there is none."""
        body = await self.get_pod_bytes(namespace, name, timeout_seconds=timeout_seconds)
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=PodObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"get pod {namespace}/{name}: {error}") from error

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:
        """The same pod undecoded, for callers that need more of it than `PodObject` has."""
        return await self._get_object(_pod_path(namespace, name), "pods", "Pod", name, timeout_seconds)

    async def get_node(self, name: str, *, timeout_seconds: float) -> NodeObject | None:
        """One node as the API server has it now; None when there is none."""
        body = await self._get_object(_node_path(name), "nodes", "Node", name, timeout_seconds)
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=NodeObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"get node {name}: {error}") from error

    async def patch_node(self, name: str, body: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Merge `body` into the node; with a `metadata.resourceVersion` in it, a node that changed since gives a 409.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        path = _node_path(name)
        wanted = ("Node", name)
        await self._call(
            "PATCH", path, verb="patch", resource="nodes", wanted=wanted, body=body, seconds=timeout_seconds
        )

    async def patch_node_condition(self, name: str, condition: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Set the condition of the node with this `type`; the others stay.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        await self._call(
            "PATCH",
            _node_path(name) + "/status",
            verb="patch",
            resource="nodes/status",
            wanted=("Node", name),
            body={"status": {"conditions": [condition]}},
            seconds=timeout_seconds,
            patch=STRATEGIC_MERGE_PATCH,
        )

    async def bind(  # noqa: PLR0913 - the fields of a Binding
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        annotations: Mapping[str, str],
        *,
        version: str = "",
        timeout_seconds: float,
    ) -> None:
        """Bind the pod of this uid to the node and give it these annotations, in one step or not at all.

        With a `version`, only if that is still the pod's resourceVersion. Raises `RefusedError`, or `NoAnswerError` when it is
        not known whether anything was written. A 409 is not definite: an API server also answers 409 for errors of its
        store (`assignPod` in pkg/registry/core/pod/storage/storage.go of Kubernetes).
        """
        metadata: dict[str, object] = {"name": name, "namespace": namespace, "uid": uid}
        if version:
            metadata["resourceVersion"] = version
        if annotations:
            metadata["annotations"] = dict(annotations)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        path = _pod_path(namespace, name) + "/binding"
        await self._call(
            "POST",
            path,
            verb="create",
            resource="pods/binding",
            wanted=SUCCESS,
            body=binding,
            seconds=timeout_seconds,
            client=self._direct,
        )

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str], *, timeout_seconds: float
    ) -> PodObject:
        """Set annotations of the pod with this uid through its status, which needs no right on the pod itself.

        Returns the pod as it is then. Raises `RefusedError` when nothing was written (422 if the pod has another uid),
        `NoAnswerError` when that is not known.
        """
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        path = _pod_path(namespace, name) + "/status"
        answer = await self._call(
            "PATCH",
            path,
            verb="patch",
            resource="pods/status",
            wanted=("Pod", name),
            body=body,
            seconds=timeout_seconds,
        )
        try:
            return msgspec.json.decode(answer, type=PodObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"patch pod {namespace}/{name}: {error}") from error

    async def evict(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:
        """Request the eviction of the pod with this uid; 429 when a disruption budget does not allow it now.

        Raises `RefusedError` when nothing was written (409 if the pod has another uid), `NoAnswerError` when that is
        not known.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = _pod_path(namespace, name) + "/eviction"
        await self._call(
            "POST",
            path,
            verb="create",
            resource="pods/eviction",
            wanted=SUCCESS,
            body=eviction,
            seconds=timeout_seconds,
        )

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        wanted = ("Event", "")
        await self._call(
            "POST", path, verb="create", resource="events", wanted=wanted, body=event, seconds=timeout_seconds
        )

    async def create_review(
        self, group: str, kind: str, resource: str, spec: Mapping[str, object], *, timeout_seconds: float
    ) -> bytes:
        """Create a review, which the API server does not store; returns the object with its status, undecoded."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{resource}"
        wanted = (kind, "")
        return await self._call(
            "POST", path, verb="create", resource=resource, wanted=wanted, body=body, seconds=timeout_seconds
        )

    async def write_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        """Merge `body`, a whole Lease, into the Lease of that name, or create it.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        path, wanted = _collection_path("leases", namespace), ("Lease", name)
        try:
            own = f"{path}/{quote(name, safe='')}"
            await self._call(
                "PATCH", own, verb="patch", resource="leases", wanted=wanted, body=body, seconds=timeout_seconds
            )
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            await self._call(
                "POST", path, verb="create", resource="leases", wanted=wanted, body=body, seconds=timeout_seconds
            )

    def _observe(self, *, verb: str, resource: str, code: int, started: float) -> None:
        seconds = time.monotonic() - started
        for observe in self._observers:
            observe(verb=verb, resource=resource, code=code, seconds=seconds)

    def _build_headers(self, method: str, path: str) -> dict[str, str]:  # noqa: ARG002 - for `NodeApi`
        """The additional headers of a call."""
        return {}

    async def _list_resources(
        self, resource: str, query: Mapping[str, str], timeout_seconds: float, *, max_bytes: int = MAX_OBJECT_BYTES
    ) -> bytes:
        """A list of objects of dynamic resource allocation (DRA)."""
        path = f"/apis/resource.k8s.io/v1/{resource}"
        try:
            return await self._call(
                "GET", path, verb="list", resource=resource, query=query, seconds=timeout_seconds, max_bytes=max_bytes
            )
        except UnknownPathError as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, "", str(error)) from error

    async def _get_object(self, path: str, resource: str, kind: str, name: str, timeout_seconds: float) -> bytes | None:
        """One object as the API server has it now; None when the API server says that this very object is not there."""
        try:
            return await self._call(
                "GET", path, verb="get", resource=resource, wanted=(kind, name), seconds=timeout_seconds
            )
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
        *,
        verb: str,
        resource: str,
        wanted: tuple[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        seconds: float = DEFAULT_TIMEOUT_SECONDS,
        patch: str = MERGE_PATCH,
        max_bytes: int = MAX_OBJECT_BYTES,
        client: HttpClient | None = None,
    ) -> bytes:
        """The body of the answer, which must be an object of the `wanted` kind and name; None for a list, which its reader checks."""
        started = time.monotonic()
        code = 0
        try:
            async with asyncio.timeout(seconds):
                response = await self._send(client or self._aiohttp, method, path, query or {}, body, patch=patch)
                with closing(response):
                    code = response.status
                    retry_after = response.headers.get(RETRY_AFTER, "")
                    answer = await _read_body(response, max_bytes)
            check_answer(f"{verb} {resource}", code, answer, wanted, retry_after=retry_after)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            code = 0
            raise NoAnswerError(f"{verb} {resource}: {_describe_error(error)}") from error
        except ForeignAnswerError:
            code = FOREIGN_CODE
            raise
        finally:
            self._observe(verb=verb, resource=resource, code=code, started=started)
        return answer

    async def _send(  # noqa: PLR0913 - an HTTP call
        self,
        client: HttpClient,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, object] | None,
        *,
        silence_seconds: float | None = None,
        patch: str = MERGE_PATCH,
    ) -> ServerReply:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent} | self._build_headers(method, path)
        if authorization := self._token.get_authorization():
            headers["Authorization"] = authorization
        headers["Content-Type"] = patch if method == "PATCH" else "application/json"
        target = path + (f"?{urlencode(query)}" if query else "")
        response = await client.request(method, target, headers, body, silence_seconds=silence_seconds)
        if authorization and response.status == HTTPStatus.UNAUTHORIZED:
            self._token.note_unauthorized(authorization)
        return response


def _choose_direct_client(configuration: Configuration, otherwise: AiohttpClient) -> HttpClient:
    """`otherwise` behind a proxy, and for an invalid address, which it reports at each call."""
    if configuration.proxy:
        return otherwise
    try:
        return DirectClient(configuration, otherwise.tls)
    except ValueError:
        return otherwise


async def _read_body(response: ServerReply, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
    """The body, but no more than `max_bytes` of it."""
    pieces, size = list[bytes](), 0
    while size < max_bytes and (piece := await response.content.readany()):
        pieces.append(piece[: max_bytes - size])
        size += len(pieces[-1])
    return b"".join(pieces)


def _build_selector_query(field_selector: str) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _collection_path(resource: Resource, namespace: str) -> str:
    group = "/apis/coordination.k8s.io/v1" if resource == "leases" else "/api/v1"
    return f"{group}/namespaces/{quote(namespace, safe='')}/{resource}" if namespace else f"{group}/{resource}"


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _describe_error(error: BaseException) -> str:
    """The text of an error; time-outs have none of their own."""
    return str(error) or type(error).__name__
