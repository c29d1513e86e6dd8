"""One API server, called raw: paths and bytes. Every status is checked, every call has a time-out."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from typing import Literal, Protocol, get_args

import msgspec

from vrampack.cards import well_known
from vrampack.kube.answers import build_answer_error, check_answer, decode_answer
from vrampack.kube.api_request import (
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    ApiRequest,
    PodGroupResource,
    build_path,
)
from vrampack.kube.credentials import Credentials
from vrampack.kube.dra_objects import ResourceSliceObject
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
from vrampack.kube.list_page import MAX_OBJECT_BYTES, ListPage, build_page_query, decode_page
from vrampack.kube.objects import LeaseObject, NodeObject, PodObject
from vrampack.kube.watch_reader import ByteStream

Resource = Literal["pods", "nodes", "namespaces", "leases"] | PodGroupResource

OPTIONAL_RESOURCES = frozenset({"deviceclasses", "resourceslices", *get_args(PodGroupResource)})
"""Many API servers have none of these. That they do not know such a path is a refusal with 404."""
DEFAULT_TIMEOUT_SECONDS = 30.0
SUCCESS = ("Status", "")
"""The answer to a call that has an effect and makes no object."""

_VERBS = {"GET": "list", "POST": "create", "PUT": "update", "PATCH": "patch"}
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

    async def list_device_classes(self, *, limit: int, token: str, max_bytes: int, timeout_seconds: float) -> bytes:
        """One page of the cluster's device classes, as `list_page`. `RefusedError` with 404: this API server has no such kind."""
        return await self._list_resources(
            "deviceclasses", build_page_query(limit, token), timeout_seconds, max_bytes=max_bytes
        )

    async def list_resource_slices(
        self, *, node: str, driver: str, timeout_seconds: float
    ) -> list[ResourceSliceObject]:
        """The slices of one DRA driver on one node, from the API server's cache. 404: this API server has no such kind."""
        query = {"resourceVersion": "0"} | build_selector_query(f"spec.nodeName={node},spec.driver={driver}")
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

    async def get_pod(self, namespace: str, name: str, *, timeout_seconds: float) -> PodObject | None:
        """One pod as the API server has it now; None when there is none."""
        body = await self.get_pod_bytes(namespace, name, timeout_seconds=timeout_seconds)
        return None if body is None else decode_answer(body, PodObject, f"get pod {namespace}/{name}")

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:
        """The same pod undecoded, for callers that need more of it than `PodObject` has."""
        return await self._get_object(build_path("pods", namespace, name), "pods", "Pod", name, timeout_seconds)

    async def get_node(self, name: str, *, timeout_seconds: float) -> NodeObject | None:
        """One node as the API server has it now; None when there is none."""
        body = await self._get_object(build_path("nodes", name=name), "nodes", "Node", name, timeout_seconds)
        return None if body is None else decode_answer(body, NodeObject, f"get node {name}")

    async def patch_node(self, name: str, body: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Merge `body` into the node; with a `metadata.resourceVersion` in it, a node that changed since gives a 409.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        path = build_path("nodes", name=name)
        await self._call("PATCH", path, "nodes", wanted=("Node", name), body=body, seconds=timeout_seconds)

    async def patch_node_condition(self, name: str, condition: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Set the condition of the node with this `type`; the others stay.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        await self._call(
            "PATCH",
            build_path("nodes", name=name) + "/status",
            "nodes/status",
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
        path = build_path("pods", namespace, name) + "/binding"
        await self._call("POST", path, "pods/binding", wanted=SUCCESS, body=binding, seconds=timeout_seconds)

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str], *, timeout_seconds: float
    ) -> PodObject:
        """Set annotations of the pod with this uid through its status, which needs no right on the pod itself.

        Returns the pod as it is then. Raises `RefusedError` when nothing was written (422 if the pod has another uid),
        `NoAnswerError` when that is not known.
        """
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        return await self._patch_pod_status(namespace, name, body, timeout_seconds)

    async def nominate_pod(
        self, namespace: str, name: str, uid: str, node_name: str, *, timeout_seconds: float
    ) -> PodObject:
        """Nominate the pod with this uid to a node where others are evicted for it, or to none. Else as `patch_pod_status`.

        A condition says so too: schedulers end a nomination, and leave conditions of others alone.
        """
        condition = {"type": well_known.PREEMPTION_CONDITION, "status": "True" if node_name else "False"}
        status = {
            "nominatedNodeName": node_name or None,
            "conditions": [condition | {"reason": "PodsEvicted", "message": node_name}],
        }
        body = {"metadata": {"uid": uid}, "status": status}
        return await self._patch_pod_status(namespace, name, body, timeout_seconds, patch=STRATEGIC_MERGE_PATCH)

    async def patch_pod_condition(
        self, namespace: str, name: str, uid: str, condition: Mapping[str, object], *, timeout_seconds: float
    ) -> PodObject:
        """Set the condition of the pod with this uid that has this `type`; the others stay. Else as `patch_pod_status`."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        return await self._patch_pod_status(
            namespace,
            name,
            body,
            timeout_seconds,
            patch=STRATEGIC_MERGE_PATCH,
            query={"fieldManager": "vrampack-answers"},
        )

    async def create_pod(self, namespace: str, pod: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Raises `RefusedError` when nothing was written (409 if there is one of this name), `NoAnswerError` when that is not known."""
        path = build_path("pods", namespace)
        await self._call("POST", path, "pods", wanted=("Pod", ""), body=pod, seconds=timeout_seconds)

    async def delete_pod(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:
        """Delete the pod with this uid. Else as `evict`."""
        path = build_path("pods", namespace, name)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._call(
            "DELETE", path, "pods", verb="delete", wanted=("Pod", name), body=body, seconds=timeout_seconds
        )

    async def evict(
        self, namespace: str, name: str, uid: str, *, timeout_seconds: float, is_dry_run: bool = False
    ) -> None:
        """Request the eviction of the pod with this uid; 429 when a disruption budget does not allow it now.

        With `is_dry_run` it is only checked. Raises `RefusedError` when nothing was written (409 if the pod has another uid), `NoAnswerError` when that is
        not known.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = build_path("pods", namespace, name) + "/eviction"
        query = {"dryRun": "All"} if is_dry_run else {}
        await self._call(
            "POST", path, "pods/eviction", wanted=SUCCESS, query=query, body=eviction, seconds=timeout_seconds
        )

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        path = build_path("events", namespace)
        await self._call("POST", path, "events", wanted=("Event", ""), body=event, seconds=timeout_seconds)

    async def create_review(
        self, group: str, kind: str, resource: str, spec: Mapping[str, object], *, timeout_seconds: float
    ) -> bytes:
        """Create a review, which the API server does not store; returns the object with its status, undecoded."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{resource}"
        return await self._call("POST", path, resource, wanted=(kind, ""), body=body, seconds=timeout_seconds)

    async def write_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        """Merge `body`, a whole Lease, into the Lease of that name, or create it.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        try:
            await self.patch_lease(namespace, name, body, timeout_seconds=timeout_seconds)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            path, wanted = build_path("leases", namespace), ("Lease", name)
            await self._call("POST", path, "leases", wanted=wanted, body=body, seconds=timeout_seconds)

    async def get_lease(self, namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None:
        path = build_path("leases", namespace, name)
        body = await self._get_object(path, "leases", "Lease", name, timeout_seconds)
        return None if body is None else decode_answer(body, LeaseObject, f"get lease {namespace}/{name}")

    async def patch_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        """Merge `body` into the Lease; with a `metadata.resourceVersion` in it, a Lease that changed since gives a 409."""
        path = build_path("leases", namespace, name)
        await self._call("PATCH", path, "leases", wanted=("Lease", name), body=body, seconds=timeout_seconds)

    def _observe(self, *, verb: str, resource: str, code: int, started: float) -> None:
        seconds = time.monotonic() - started
        for observe in self._observers:
            observe(verb=verb, resource=resource, code=code, seconds=seconds)

    async def _patch_pod_status(
        self,
        namespace: str,
        name: str,
        body: Mapping[str, object],
        timeout_seconds: float,
        *,
        patch: str = MERGE_PATCH,
        query: Mapping[str, str] | None = None,
    ) -> PodObject:
        path = build_path("pods", namespace, name) + "/status"
        wanted = ("Pod", name)
        answer = await self._call(
            "PATCH", path, "pods/status", wanted=wanted, query=query, body=body, seconds=timeout_seconds, patch=patch
        )
        return decode_answer(answer, PodObject, f"patch pod {namespace}/{name}")

    def _build_headers(self, request: ApiRequest) -> dict[str, str]:  # noqa: ARG002 - for `NodeApi`
        """The additional headers of a call."""
        return {}

    async def _list_resources(
        self, resource: str, query: Mapping[str, str], timeout_seconds: float, *, max_bytes: int = MAX_OBJECT_BYTES
    ) -> bytes:
        """A list of objects of dynamic resource allocation (DRA)."""
        path = f"/apis/resource.k8s.io/v1/{resource}"
        return await self._call("GET", path, resource, query=query, seconds=timeout_seconds, max_bytes=max_bytes)

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
