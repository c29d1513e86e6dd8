"""The routes: the cluster, one node, pending pods, one pod explained, and reports of simulations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from extender.settings import ExtenderConfiguration
from vrampack.cli.explain.explanations import explain_bound_pod, explain_pending_pod, explain_without_cluster
from vrampack.cli.explain.main import MissingPodError, read_explained_pod
from vrampack.cli.explain.own_pod import explain_by_own_pod
from vrampack.cli.explain.pod import ExplainedPod
from vrampack.cli.explain.schema import Explanation
from vrampack.cli.ui.cluster_reader import ClusterReader
from vrampack.cli.ui.cluster_reading import ClusterReading
from vrampack.cli.ui.node_filter import read_node_filter
from vrampack.cli.ui.pages import PageRenderer
from vrampack.cli.ui.replay_job import ReplayJob
from vrampack.kube.errors import NoAnswerError, RefusedError

MAX_FORM_BYTES = 4096
OBJECT_NAME = re.compile(r"[a-z0-9][-a-z0-9.]*")
"""What may be part of an API server path: `..` would lead out of it."""
STYLE = Path(__file__).parent / "style.css"
REPORT_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
}
"""A report may come from another person, so it must not run, load or send anything."""


@dataclass(frozen=True, slots=True)
class UiSources:
    """The sources of what the pages show."""

    reader: ClusterReader
    job: ReplayJob
    pages: PageRenderer
    report_file: Path | None = None


def build_ui_app(sources: UiSources) -> FastAPI:
    """The app with the pages, without the access gate."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    _add_cluster_routes(app, sources)
    _add_pod_routes(app, sources)
    _add_report_routes(app, sources)
    _add_error_pages(app, sources.pages)
    return app


def _add_cluster_routes(app: FastAPI, sources: UiSources) -> None:
    @app.get("/")
    async def show_cluster(q: str = "", order: str = "name", page: int = 1) -> Response:
        reading = await sources.reader.get_reading()
        return HTMLResponse(sources.pages.render_cluster(reading, read_node_filter(q, order), page))

    @app.get("/nodes/{name}")
    async def show_node(name: str) -> Response:
        reading = await sources.reader.get_reading()
        found = next((each for each in reading.nodes if each.name == name), None)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no node {name} with cards or pods on them")
        return HTMLResponse(sources.pages.render_node(reading, found))

    @app.post("/read-again")
    async def read_again(request: Request) -> Response:
        form = await _read_form(request)
        await sources.reader.read_again()
        return RedirectResponse(choose_way_back(form.get("back", ["/"])[0]), HTTPStatus.SEE_OTHER)

    @app.get("/style.css")
    async def send_style() -> Response:
        return Response(STYLE.read_bytes(), media_type="text/css")


def _add_pod_routes(app: FastAPI, sources: UiSources) -> None:
    reader = sources.reader

    @app.get("/pending")
    async def list_pending(page: int = 1) -> Response:
        return HTMLResponse(sources.pages.render_pending(await reader.get_reading(), page))

    @app.get("/pods/{namespace}/{name}")
    async def show_pod(namespace: str, name: str, page: int = 1) -> Response:
        if not (OBJECT_NAME.fullmatch(namespace) and OBJECT_NAME.fullmatch(name)):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"{namespace}/{name} is not the name of a pod")
        reading = await reader.get_reading()
        settled = reader.settings.settle_whole_cards(reading.cluster.unpaid_use)
        try:
            subject = await read_explained_pod(reader.api, settled, namespace, name)
        except MissingPodError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, str(error)) from error
        # With 5,000 nodes this takes a second: in a thread it does not delay other pages.
        explanation = await asyncio.to_thread(_explain_pod, reader.settings, reading, subject)
        return HTMLResponse(sources.pages.render_pod(reading, explanation, page))


def _add_report_routes(app: FastAPI, sources: UiSources) -> None:
    @app.get("/simulate")
    async def show_simulation(chosen: str = "") -> Response:
        reading = await sources.reader.get_reading()
        given = "" if sources.report_file is None else sources.report_file.name
        page = sources.pages.render_simulation(
            reading, sources.job.status, given, is_nothing_chosen=chosen == "nothing"
        )
        return HTMLResponse(page)

    @app.post("/simulate")
    async def start_simulation(request: Request) -> Response:
        form = await _read_form(request)
        is_chosen = sources.job.start(form.get("policy", []), keeps_bound="keep" in form)
        return RedirectResponse("/simulate" if is_chosen else "/simulate?chosen=nothing", HTTPStatus.SEE_OTHER)

    @app.get("/reports/replay")
    async def send_replay_report() -> Response:
        if not sources.job.status.report:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no replay has ended yet")
        return HTMLResponse(sources.job.status.report, headers=REPORT_HEADERS)

    @app.get("/reports/given")
    async def send_given_report() -> Response:
        if sources.report_file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "vrampack ui was started without --report")
        try:
            return HTMLResponse(sources.report_file.read_bytes(), headers=REPORT_HEADERS)
        except OSError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"--report: {error}") from error


def _add_error_pages(app: FastAPI, pages: PageRenderer) -> None:
    @app.exception_handler(AnyHTTPException)  # also the framework's own, for a path that does not exist
    async def show_missing(_: Request, error: AnyHTTPException) -> Response:
        return HTMLResponse(pages.render_error(error.status_code, str(error.detail)), error.status_code)

    @app.exception_handler(RequestValidationError)
    async def show_misuse(_: Request, __: RequestValidationError) -> Response:
        status = HTTPStatus.BAD_REQUEST
        return HTMLResponse(pages.render_error(status, "the page in the address is not a number"), status)

    @app.exception_handler(RefusedError)
    async def show_refusal(_: Request, error: RefusedError) -> Response:
        status = HTTPStatus.BAD_GATEWAY
        return HTMLResponse(pages.render_error(status, f"the API server refused: {error}"), status)

    @app.exception_handler(NoAnswerError)
    async def show_silence(_: Request, error: NoAnswerError) -> Response:
        status = HTTPStatus.BAD_GATEWAY
        return HTMLResponse(pages.render_error(status, f"no answer from the API server: {error}"), status)


def choose_way_back(path: str) -> str:
    """The path if it is ours, else the first page: `//host`, also with a backslash, would be another host."""
    return path if path.startswith("/") and path[1:2] not in ("/", "\\") else "/"


def _explain_pod(settings: ExtenderConfiguration, reading: ClusterReading, subject: ExplainedPod) -> Explanation:
    """Explain the pod as it is now, by the cluster as it was last read."""
    if not reading.may_list_nodes or (subject.needs_cluster and not subject.knows_rules):
        return explain_by_own_pod(subject, settings)
    if subject.state == "bound":
        counted = reading.cluster.nodes.get(subject.pod.node_name)
        return explain_bound_pod(subject, settings, None if counted is None else counted.listed.facts)
    if subject.pod.request is None or not subject.needs_cluster:
        return explain_without_cluster(subject, settings)
    return explain_pending_pod(subject, settings, subject.pod.request, reading.cluster)


async def _read_form(request: Request) -> Mapping[str, Sequence[str]]:
    """The fields of a small form. Raises `HTTPException` 413 for a large one."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this form is too large")
    return parse_qs(body.decode(errors="replace"))
