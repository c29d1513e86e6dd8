"""The HTTP handlers of the store: one per call of `endpoints.py`, with query parameters, bodies and errors."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

from vrampack.simulator import discovery, errors, request_decoding, workload_strategy
from vrampack.simulator.content_negotiation import Representation, negotiate_representation, wants_table
from vrampack.simulator.endpoints import explain_absence, list_endpoints
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.pagination import ContinueToken, ObjectPage
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import Object, ResourceKind
from vrampack.simulator.selectors import ObjectSelector
from vrampack.simulator.watch_streams import WatchRequest, WatchStream, WatchStreams

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The real server's limit."""
WATCH_SECONDS = 1800.0
"""For a watch without `timeoutSeconds`; the real server draws from 30 to 60 minutes."""
UNSUPPORTED_LIST_PARAMETERS = ("resourceVersionMatch", "sendInitialEvents")
"""Parameters of a list that are refused, because ignoring them would give a wrong answer."""
KNOWN_ROOTS = ("/api/", "/apis/apps/")
"""Below these paths the real server refuses with a Status, elsewhere in plain text."""

RequestHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_application(store: ObjectStore, watches: WatchStreams) -> web.Application:
    """The application with everything that the embedded API server serves."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_convert_errors])
    face = _ObjectHandlers(store, watches)
    pages = _build_server_handlers()
    for route in list_endpoints():
        answer = pages[route.handler] if route.kind is None else partial(getattr(face, route.handler), route.kind)
        app.router.add_route(route.method, route.path, answer)
    return app


class _ObjectHandlers:
    """One method per call, named as in `endpoints.ObjectHandlerName`."""

    def __init__(self, store: ObjectStore, watches: WatchStreams) -> None:
        self._store = store
        self._watches = watches

    async def list_or_watch(self, kind: ResourceKind, request: web.Request) -> web.StreamResponse:
        query = request.query
        selector = ObjectSelector.parse(
            kind, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", "")
        )
        if query.get("watch") in ("true", "1"):
            return await self._watch(kind, request, selector)
        for parameter in UNSUPPORTED_LIST_PARAMETERS:
            if parameter in query:
                raise errors.bad_request(f"the embedded API server does not serve {parameter} in a list")
        return _build_json_response(
            self._negotiate(kind, request).render_list(self._list_page(kind, request, selector))
        )

    async def create(self, kind: ResourceKind, request: web.Request) -> web.Response:
        form = self._negotiate(kind, request)  # first, so that nothing is created if it cannot be answered
        body = await request_decoding.read_body(request, kind.name)
        with self._open_dry_run(request, "CreateOptions"):
            item = self._store.create(kind, request.match_info.get("namespace", ""), body)
        return _build_json_response(form.render_object(item), status=HTTPStatus.CREATED)

    async def get(self, kind: ResourceKind, request: web.Request) -> web.Response:
        return _build_json_response(
            self._negotiate(kind, request).render_object(
                self._store.get(kind, *request_decoding.parse_namespaced_name(request))
            )
        )

    async def patch(self, kind: ResourceKind, request: web.Request) -> web.Response:
        return await self._patch(kind, request, is_status=False)

    async def patch_status(self, kind: ResourceKind, request: web.Request) -> web.Response:
        return await self._patch(kind, request, is_status=True)

    async def get_scale(self, kind: ResourceKind, request: web.Request) -> web.Response:
        return _build_json_response(
            workload_strategy.build_scale(self._store.get(kind, *request_decoding.parse_namespaced_name(request)))
        )

    async def patch_scale(self, kind: ResourceKind, request: web.Request) -> web.Response:
        how, patch = await request_decoding.read_patch(request)
        namespace, name = request_decoding.parse_namespaced_name(request)
        change = workload_strategy.build_scale_patch(
            how(workload_strategy.build_scale(self._store.get(kind, namespace, name)), patch)
        )
        with self._open_dry_run(request, "PatchOptions"):
            item = self._store.patch(kind, namespace, name, change, apply_patch=apply_merge_patch, is_status=False)
        return _build_json_response(workload_strategy.build_scale(item))

    async def delete(self, kind: ResourceKind, request: web.Request) -> web.Response:
        form = self._negotiate(kind, request)
        namespace, name = request_decoding.parse_namespaced_name(request)
        options = await request_decoding.read_body(request, "DeleteOptions") if request.can_read_body else {}
        if "gracePeriodSeconds" in request.query:
            options["gracePeriodSeconds"] = request_decoding.parse_number(request, "gracePeriodSeconds")
        if "propagationPolicy" in request.query:
            options["propagationPolicy"] = request.query["propagationPolicy"]
        uid = self._store.get(kind, namespace, name)["metadata"]["uid"]
        with self._open_dry_run(request, "DeleteOptions", options.get("dryRun")):
            item = self._store.delete(kind, namespace, name, options)
        if item is not None:
            return _build_json_response(form.render_object(item))
        group = {"group": kind.group} if kind.group else {}
        return _build_json_response(_build_success(details={"name": name, **group, "kind": kind.plural, "uid": uid}))

    async def bind(self, _: ResourceKind, request: web.Request) -> web.Response:
        body = await request_decoding.read_body(request, "Binding")
        with self._open_dry_run(request, "CreateOptions", body.get("dryRun")):
            self._store.bind(*request_decoding.parse_namespaced_name(request), body)
        return _build_json_response(_build_success(code=HTTPStatus.CREATED), status=HTTPStatus.CREATED)

    async def evict(self, _: ResourceKind, request: web.Request) -> web.Response:
        body = await request_decoding.read_body(request, "Eviction")
        with self._open_dry_run(request, "CreateOptions", (body.get("deleteOptions") or {}).get("dryRun")):
            self._store.evict(*request_decoding.parse_namespaced_name(request), body)
        return _build_json_response(_build_success(code=HTTPStatus.CREATED), status=HTTPStatus.CREATED)

    def _list_page(self, kind: ResourceKind, request: web.Request, selector: ObjectSelector) -> ObjectPage:
        namespace = request.match_info.get("namespace")
        version, limit = (
            request_decoding.parse_resource_version(request),
            request_decoding.parse_number(request, "limit"),
        )
        if text := request.query.get("continue"):
            if version:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            return self._store.read_page(
                kind, namespace, limit=limit, token=ContinueToken.parse_text(text), selector=selector
            )
        if version > self._store.version:
            raise errors.version_too_large(version, self._store.version)
        # If any version is acceptable, the real server answers from its cache, without pages.
        is_any = request.query.get("resourceVersion") == "0"
        return self._store.read_page(kind, namespace, limit=0 if is_any else limit, selector=selector)

    async def _patch(self, kind: ResourceKind, request: web.Request, *, is_status: bool) -> web.Response:
        form = self._negotiate(kind, request)
        how, patch = await request_decoding.read_patch(request)
        with self._open_dry_run(request, "PatchOptions"):
            new = self._store.patch(
                kind, *request_decoding.parse_namespaced_name(request), patch, apply_patch=how, is_status=is_status
            )
        return _build_json_response(form.render_object(new))

    async def _watch(self, kind: ResourceKind, request: web.Request, selector: ObjectSelector) -> web.StreamResponse:
        wish = WatchRequest(
            kind=kind,
            namespace=request.match_info.get("namespace"),
            version=request_decoding.parse_resource_version(request),
            timeout_seconds=request_decoding.parse_number(request, "timeoutSeconds") or WATCH_SECONDS,
            wants_bookmarks=request.query.get("allowWatchBookmarks") in ("true", "1"),
            wants_initial_events=request_decoding.parse_send_initial_events(request.query),
            selector=selector,
            representation=self._negotiate(kind, request),
        )
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)

        async def write(line: bytes) -> None:
            await response.write(line)

        def abort() -> None:
            if request.transport is not None:
                request.transport.abort()

        with contextlib.suppress(ConnectionResetError):  # the client disconnected while a line was being sent
            await self._watches.serve_watch(WatchStream(wish, write, abort))
        return response

    def _negotiate(self, kind: ResourceKind, request: web.Request) -> Representation:
        accepted, include = request.headers.get(hdrs.ACCEPT, ""), request.query.get("includeObject", "")
        return negotiate_representation(kind, accepted, include=include, now=self._store.current_time)

    def _open_dry_run(
        self, request: web.Request, options: str, body_option: object = None
    ) -> contextlib.AbstractContextManager[None]:
        """A dry run if `dryRun` is in the query or the body's options: check and answer, but do not write."""
        asked = [*request.query.getall("dryRun", []), *(body_option if isinstance(body_option, list) else [])]
        wrong = [each for each in asked if each != "All"]
        if wrong:
            raise errors.invalid_option(options, "dryRun", msgspec.json.encode(wrong).decode(), '"All"')
        return self._store.dry_run() if asked else contextlib.nullcontext()


def _build_server_handlers() -> Mapping[str, RequestHandler]:
    """The handler of each `endpoints.ServerPageName`."""

    def page(body: Callable[[str], object]) -> RequestHandler:
        async def answer(request: web.Request) -> web.Response:
            wants_table(request.headers.get(hdrs.ACCEPT, ""))  # refuses if JSON is not accepted
            return _build_json_response(body(request.path))

        return answer

    return {
        "probe": _answer_ok,
        "version": page(lambda _: discovery.SERVER_VERSION),
        "versions": page(lambda _: discovery.build_api_versions()),
        "groups": page(lambda _: discovery.build_api_group_list()),
        "group": page(lambda _: discovery.build_api_group()),
        "resources": page(discovery.build_api_resource_list),
        "schemas": page(lambda _: discovery.build_openapi_index()),
        "schema": page(lambda path: discovery.build_openapi_document(path.removeprefix("/openapi/v3"))),
    }


@web.middleware
async def _convert_errors(request: web.Request, handler: RequestHandler) -> web.StreamResponse:
    """Send every refusal as a Status object; outside the known roots the real server answers in plain text."""
    try:
        return await handler(request)
    except StatusError as refusal:
        return _build_failure_response(refusal)
    except web.HTTPNotFound:
        if not request.path.startswith(KNOWN_ROOTS):
            return web.Response(text="404 page not found\n", status=HTTPStatus.NOT_FOUND)
        return _build_failure_response(errors.no_such_resource(explain_absence(request.path)))
    except web.HTTPMethodNotAllowed:
        return _build_failure_response(errors.method_not_allowed())
    except web.HTTPRequestEntityTooLarge:
        return _build_failure_response(errors.too_large(MAX_BODY_BYTES))


async def _answer_ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _build_success(**more: object) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


def _build_failure_response(refusal: StatusError) -> web.Response:
    return _build_json_response(refusal.build_status(), status=refusal.code)


def _build_json_response(body: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
