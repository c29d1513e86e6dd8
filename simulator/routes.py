"""The HTTP face of the store: URLs, query parameters, bodies, and the form of every answer."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

from simulator import errors
from simulator.errors import StatusError
from simulator.kinds import KINDS, Kind, Object
from simulator.merge import Merge, merge, strategic_merge
from simulator.paging import Page, Token
from simulator.store import Store
from simulator.watches import Watch, Watches, Wish

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The real server's limit."""
WATCH_SECONDS = 1800.0
"""For a watch without `timeoutSeconds`; the real server draws from 30 to 60 minutes."""
REFUSED_PARAMETERS = ("fieldSelector", "labelSelector", "sendInitialEvents", "resourceVersionMatch")
"""Not served. Ignored, they would answer something else than was asked."""
MERGES: dict[str, Merge] = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic_merge,
}
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+embedded", "platform": "embedded"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(store: Store, watches: Watches) -> web.Application:
    """Everything the embedded API server serves; nothing else is there."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_answer_refusals])
    face = _Face(store, watches)
    whole, spaced = "/api/v1/{plural}", "/api/v1/namespaces/{namespace}/{plural}"
    for collection in (whole, spaced):
        app.router.add_get(collection, face.list_or_watch, allow_head=False)
        app.router.add_post(collection, face.create)
        app.router.add_get(collection + "/{name}", face.get, allow_head=False)
        app.router.add_patch(collection + "/{name}", face.patch)
        app.router.add_delete(collection + "/{name}", face.delete)
        app.router.add_get(collection + "/{name}/status", face.get, allow_head=False)
        app.router.add_patch(collection + "/{name}/status", face.patch_status)
    app.router.add_post("/api/v1/namespaces/{namespace}/pods/{name}/binding", face.bind)
    app.router.add_get("/version", _version, allow_head=False)
    for probe in ("/healthz", "/livez", "/readyz"):
        app.router.add_get(probe, _ok, allow_head=False)
    return app


class _Face:
    """One method per call."""

    def __init__(self, store: Store, watches: Watches) -> None:
        self._store = store
        self._watches = watches

    async def list_or_watch(self, request: web.Request) -> web.StreamResponse:
        kind, namespace = _collection(request)
        for parameter in REFUSED_PARAMETERS:
            if parameter in request.query:
                raise errors.bad_request(f"the embedded API server does not serve {parameter}")
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, kind, namespace)
        return _json(_list_body(kind, self._page(request, kind, namespace)))

    async def create(self, request: web.Request) -> web.Response:
        kind, namespace = _collection(request)
        if kind.is_namespaced and namespace is None:
            raise errors.method_not_allowed()
        item = self._store.create(kind, namespace or "", await _body(request, kind.name))
        return _json(kind.tagged(item), status=HTTPStatus.CREATED)

    async def get(self, request: web.Request) -> web.Response:
        kind, namespace, name = _place(request)
        return _json(kind.tagged(self._store.get(kind, namespace, name)))

    async def patch(self, request: web.Request) -> web.Response:
        return await self._patch(request, is_status=False)

    async def patch_status(self, request: web.Request) -> web.Response:
        return await self._patch(request, is_status=True)

    async def delete(self, request: web.Request) -> web.Response:
        kind, namespace, name = _place(request)
        options = await _body(request, "DeleteOptions") if request.can_read_body else {}
        if "gracePeriodSeconds" in request.query:
            options["gracePeriodSeconds"] = _number(request, "gracePeriodSeconds")
        uid = self._store.get(kind, namespace, name)["metadata"]["uid"]
        item = self._store.delete(kind, namespace, name, options)
        if item is not None:
            return _json(kind.tagged(item))
        return _json(_success(details={"name": name, "kind": kind.plural, "uid": uid}))

    async def bind(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        self._store.bind(namespace, name, await _body(request, "Binding"))
        return _json(_success(code=HTTPStatus.CREATED), status=HTTPStatus.CREATED)

    def _page(self, request: web.Request, kind: Kind, namespace: str | None) -> Page:
        version, limit = _version_of(request), _number(request, "limit")
        if text := request.query.get("continue"):
            if version:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            return self._store.page(kind, namespace, limit=limit, token=Token.parse(text))
        if version > self._store.version:
            raise errors.version_too_large(version, self._store.version)
        # Asked for any version at all, the real server answers from its cache, whole.
        is_any = request.query.get("resourceVersion") == "0"
        return self._store.page(kind, namespace, limit=0 if is_any else limit)

    async def _patch(self, request: web.Request, *, is_status: bool) -> web.Response:
        kind, namespace, name = _place(request)
        how = MERGES.get(request.content_type)
        if how is None:
            raise errors.unsupported_media_type()
        patch = await _body(request, "patch")
        new = self._store.patch(kind, namespace, name, patch, merge=how, is_status=is_status)
        return _json(kind.tagged(new))

    async def _watch(self, request: web.Request, kind: Kind, namespace: str | None) -> web.StreamResponse:
        wish = Wish(
            kind=kind,
            namespace=namespace,
            version=_version_of(request),
            timeout_seconds=_number(request, "timeoutSeconds") or WATCH_SECONDS,
            wants_bookmarks=request.query.get("allowWatchBookmarks") in ("true", "1"),
        )
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)

        async def write(line: bytes) -> None:
            await response.write(line)

        def abort() -> None:
            if request.transport is not None:
                request.transport.abort()

        with contextlib.suppress(ConnectionResetError):  # the client went away while a line was on its way
            await self._watches.run(Watch(wish, write, abort))
        return response


@web.middleware
async def _answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal leaves as a Status object; below no known root the real server answers plain text."""
    try:
        return await handler(request)
    except StatusError as refusal:
        return _refused(refusal)
    except web.HTTPNotFound:
        if not request.path.startswith(("/api/", "/apis/")):
            return web.Response(text="404 page not found\n", status=HTTPStatus.NOT_FOUND)
        return _refused(errors.no_such_resource())
    except web.HTTPMethodNotAllowed:
        return _refused(errors.method_not_allowed())
    except web.HTTPRequestEntityTooLarge:
        return _refused(errors.too_large(MAX_BODY_BYTES))


async def _version(_: web.Request) -> web.Response:
    return _json(VERSION)


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _collection(request: web.Request) -> tuple[Kind, str | None]:
    kind = KINDS.get(request.match_info["plural"])
    namespace = request.match_info.get("namespace")
    if kind is None or (namespace is not None and not kind.is_namespaced):
        raise errors.no_such_resource()
    return kind, namespace


def _place(request: web.Request) -> tuple[Kind, str, str]:
    kind, namespace = _collection(request)
    if kind.is_namespaced and namespace is None:
        raise errors.no_such_resource()
    return kind, namespace or "", request.match_info["name"]


async def _body(request: web.Request, what: str) -> Object:
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding {what}: {error}") from error
    if not isinstance(body, dict):
        raise errors.bad_request(f"error decoding {what}: not a JSON object")
    return body


def _number(request: web.Request, parameter: str) -> int:
    text = request.query.get(parameter) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def _version_of(request: web.Request) -> int:
    text = request.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise errors.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}"')
    return int(text)


def _list_body(kind: Kind, page: Page) -> Object:
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.token is not None:
        metadata |= {"continue": page.token.text(), "remainingItemCount": page.remaining}
    return {"kind": f"{kind.name}List", "apiVersion": "v1", "metadata": metadata, "items": page.items}


def _success(**more: object) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


def _refused(refusal: StatusError) -> web.Response:
    return _json(refusal.status(), status=refusal.code)


def _json(body: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
