"""The HTTP face of the store: what answers each call of `surface.py`, query parameters, bodies, refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

from vrampack.simulator import apps, discovery, errors, requests
from vrampack.simulator.errors import StatusError
from vrampack.simulator.forms import Form, form, is_table
from vrampack.simulator.kinds import Kind, Object
from vrampack.simulator.merge import merge
from vrampack.simulator.paging import Page, Token
from vrampack.simulator.selectors import Selector
from vrampack.simulator.store import Store
from vrampack.simulator.surface import surface
from vrampack.simulator.watches import Watch, Watches, Wish

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The real server's limit."""
WATCH_SECONDS = 1800.0
"""For a watch without `timeoutSeconds`; the real server draws from 30 to 60 minutes."""
NO_PARAMETERS = ("resourceVersionMatch", "sendInitialEvents")
"""Of a list. Ignored, they would answer something else than was asked."""
KNOWN_ROOTS = ("/api/", "/apis/apps/")
"""Below these the real server refuses with a Status, elsewhere in plain text."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(store: Store, watches: Watches) -> web.Application:
    """Everything the embedded API server serves; nothing else is there."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_answer_refusals])
    face = _Face(store, watches)
    pages = _pages()
    for route in surface():
        answer = pages[route.answer] if route.kind is None else partial(getattr(face, route.answer), route.kind)
        app.router.add_route(route.method, route.path, answer)
    return app


class _Face:
    """One method per call, named as in `surface.Call`."""

    def __init__(self, store: Store, watches: Watches) -> None:
        self._store = store
        self._watches = watches

    async def list_or_watch(self, kind: Kind, request: web.Request) -> web.StreamResponse:
        query = request.query
        selector = Selector.parse(kind, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", ""))
        if query.get("watch") in ("true", "1"):
            return await self._watch(kind, request, selector)
        for parameter in NO_PARAMETERS:
            if parameter in query:
                raise errors.bad_request(f"the embedded API server does not serve {parameter} in a list")
        return _json(self._form(kind, request).many(self._page(kind, request, selector)))

    async def create(self, kind: Kind, request: web.Request) -> web.Response:
        form = self._form(kind, request)  # first: what cannot be answered is not done
        body = await requests.body(request, kind.name)
        with self._rehearsal(request, "CreateOptions"):
            item = self._store.create(kind, request.match_info.get("namespace", ""), body)
        return _json(form.one(item), status=HTTPStatus.CREATED)

    async def get(self, kind: Kind, request: web.Request) -> web.Response:
        return _json(self._form(kind, request).one(self._store.get(kind, *requests.place(request))))

    async def patch(self, kind: Kind, request: web.Request) -> web.Response:
        return await self._patch(kind, request, is_status=False)

    async def patch_status(self, kind: Kind, request: web.Request) -> web.Response:
        return await self._patch(kind, request, is_status=True)

    async def get_scale(self, kind: Kind, request: web.Request) -> web.Response:
        return _json(apps.scale(self._store.get(kind, *requests.place(request))))

    async def patch_scale(self, kind: Kind, request: web.Request) -> web.Response:
        how, patch = await requests.patch(request)
        namespace, name = requests.place(request)
        change = apps.rescaled(how(apps.scale(self._store.get(kind, namespace, name)), patch))
        with self._rehearsal(request, "PatchOptions"):
            item = self._store.patch(kind, namespace, name, change, merge=merge, is_status=False)
        return _json(apps.scale(item))

    async def delete(self, kind: Kind, request: web.Request) -> web.Response:
        form = self._form(kind, request)
        namespace, name = requests.place(request)
        options = await requests.body(request, "DeleteOptions") if request.can_read_body else {}
        if "gracePeriodSeconds" in request.query:
            options["gracePeriodSeconds"] = requests.number(request, "gracePeriodSeconds")
        if "propagationPolicy" in request.query:
            options["propagationPolicy"] = request.query["propagationPolicy"]
        uid = self._store.get(kind, namespace, name)["metadata"]["uid"]
        with self._rehearsal(request, "DeleteOptions", options.get("dryRun")):
            item = self._store.delete(kind, namespace, name, options)
        if item is not None:
            return _json(form.one(item))
        group = {"group": kind.group} if kind.group else {}
        return _json(_success(details={"name": name, **group, "kind": kind.plural, "uid": uid}))

    async def bind(self, _: Kind, request: web.Request) -> web.Response:
        body = await requests.body(request, "Binding")
        with self._rehearsal(request, "CreateOptions", body.get("dryRun")):
            self._store.bind(*requests.place(request), body)
        return _json(_success(code=HTTPStatus.CREATED), status=HTTPStatus.CREATED)

    async def evict(self, _: Kind, request: web.Request) -> web.Response:
        body = await requests.body(request, "Eviction")
        with self._rehearsal(request, "CreateOptions", (body.get("deleteOptions") or {}).get("dryRun")):
            self._store.evict(*requests.place(request), body)
        return _json(_success(code=HTTPStatus.CREATED), status=HTTPStatus.CREATED)

    def _page(self, kind: Kind, request: web.Request, selector: Selector) -> Page:
        namespace = request.match_info.get("namespace")
        version, limit = requests.version(request), requests.number(request, "limit")
        if text := request.query.get("continue"):
            if version:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            return self._store.page(kind, namespace, limit=limit, token=Token.parse(text), selector=selector)
        if version > self._store.version:
            raise errors.version_too_large(version, self._store.version)
        # Asked for any version at all, the real server answers from its cache, whole.
        is_any = request.query.get("resourceVersion") == "0"
        return self._store.page(kind, namespace, limit=0 if is_any else limit, selector=selector)

    async def _patch(self, kind: Kind, request: web.Request, *, is_status: bool) -> web.Response:
        form = self._form(kind, request)
        how, patch = await requests.patch(request)
        with self._rehearsal(request, "PatchOptions"):
            new = self._store.patch(kind, *requests.place(request), patch, merge=how, is_status=is_status)
        return _json(form.one(new))

    async def _watch(self, kind: Kind, request: web.Request, selector: Selector) -> web.StreamResponse:
        wish = Wish(
            kind=kind,
            namespace=request.match_info.get("namespace"),
            version=requests.version(request),
            timeout_seconds=requests.number(request, "timeoutSeconds") or WATCH_SECONDS,
            wants_bookmarks=request.query.get("allowWatchBookmarks") in ("true", "1"),
            wants_initial=requests.wants_initial(request.query),
            selector=selector,
            form=self._form(kind, request),
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

    def _form(self, kind: Kind, request: web.Request) -> Form:
        accepted, include = request.headers.get(hdrs.ACCEPT, ""), request.query.get("includeObject", "")
        return form(kind, accepted, include=include, now=self._store.now)

    def _rehearsal(
        self, request: web.Request, options: str, in_body: object = None
    ) -> contextlib.AbstractContextManager[None]:
        """What `dryRun` asks for, in the query or in the body's options: check and answer, but do not write."""
        asked = [*request.query.getall("dryRun", []), *(in_body if isinstance(in_body, list) else [])]
        wrong = [each for each in asked if each != "All"]
        if wrong:
            raise errors.invalid_option(options, "dryRun", msgspec.json.encode(wrong).decode(), '"All"')
        return self._store.rehearsal() if asked else contextlib.nullcontext()


def _pages() -> Mapping[str, Answer]:
    """What answers each `surface.Page`."""

    def page(body: Callable[[str], object]) -> Answer:
        async def answer(request: web.Request) -> web.Response:
            is_table(request.headers.get(hdrs.ACCEPT, ""))  # refused where JSON is not taken
            return _json(body(request.path))

        return answer

    return {
        "probe": _ok,
        "version": page(lambda _: discovery.VERSION),
        "versions": page(lambda _: discovery.versions()),
        "groups": page(lambda _: discovery.groups()),
        "group": page(lambda _: discovery.group()),
        "resources": page(discovery.resources),
        "schemas": page(lambda _: discovery.schemas()),
        "schema": page(lambda path: discovery.schema(path.removeprefix("/openapi/v3"))),
    }


@web.middleware
async def _answer_refusals(request: web.Request, handler: Answer) -> web.StreamResponse:
    """Every refusal leaves as a Status object; below no known root the real server answers plain text."""
    try:
        return await handler(request)
    except StatusError as refusal:
        return _refused(refusal)
    except web.HTTPNotFound:
        if not request.path.startswith(KNOWN_ROOTS):
            return web.Response(text="404 page not found\n", status=HTTPStatus.NOT_FOUND)
        return _refused(errors.no_such_resource())
    except web.HTTPMethodNotAllowed:
        return _refused(errors.method_not_allowed())
    except web.HTTPRequestEntityTooLarge:
        return _refused(errors.too_large(MAX_BODY_BYTES))


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _success(**more: object) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


def _refused(refusal: StatusError) -> web.Response:
    return _json(refusal.status(), status=refusal.code)


def _json(body: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
