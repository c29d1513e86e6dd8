"""The pages on a real listener, in front of an embedded API server whose lists a reader may see in part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from extender.http.server import build_server
from extender.settings import load_settings
from vrampack.cli.ui.access import AccessGate, GuardedApp
from vrampack.cli.ui.app import UiSources, build_ui_app
from vrampack.cli.ui.cluster_reader import ClusterReader
from vrampack.cli.ui.main import CALLED_BY_A_BROWSER
from vrampack.cli.ui.pages import PageRenderer
from vrampack.cli.ui.replay_job import ReplayJob
from vrampack.http.listener import open_listener
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Object = dict[str, Any]  # Any: raw API objects


@dataclass(frozen=True)
class PodRights:
    """Whose pods may be listed, and whether namespaces may."""

    namespaces: Collection[str]
    all_namespaces: Sequence[str] | None = None
    """What a list of namespaces gives; None: it is refused."""
    may_list_nodes: bool = True


@dataclass(frozen=True)
class Answer:
    """What came."""

    status: int
    headers: Mapping[str, str]
    text: str


class UiSite:
    """A browser's side of the pages, without a browser."""

    def __init__(self, gate: AccessGate, session: aiohttp.ClientSession, api: ApiServer, job: ReplayJob) -> None:
        self.gate = gate
        self.api = api
        self.job = job
        self.url = gate.url.partition("/open")[0]
        self._session = session

    async def ask(self, path: str, method: str = "GET", **options: Any) -> Answer:  # noqa: ANN401 - aiohttp's own
        """One request; redirects are not followed."""
        async with self._session.request(method, self.url + path, allow_redirects=False, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.text())

    async def log_in(self) -> Answer:
        return await self.ask(self.gate.url.removeprefix(self.url))

    async def post(self, path: str, **fields: str | Sequence[str]) -> Answer:
        """As one of our forms sends it."""
        given = [
            (name, text) for name, value in fields.items() for text in ([value] if isinstance(value, str) else value)
        ]
        return await self.ask(path, "POST", data=given, headers={"Origin": self.url})


@asynccontextmanager
async def run_ui(
    folder: Path,
    objects: Iterable[Object],
    *,
    rights: PodRights | None = None,
    namespaces: Sequence[str] = (),
    metrics_url: str = "",
    own_namespace: str = "",
    report_file: Path | None = None,
    config: Path | None = None,
    is_logged_in: bool = True,
) -> AsyncIterator[UiSite]:
    """The pages of these objects until the block ends. Without `rights` the reader may list everything."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer())
        for each in objects:
            (api.restore if each["kind"] == "Pod" else api.create)(each)
        url = api.url if rights is None else await stack.enter_async_context(run_authorizer(api.url, rights))
        kubeconfig = write_kubeconfig(folder, url)
        settings = load_settings(config)
        api_client = Api(await load_credentials(kubeconfig, None))
        reader = ClusterReader(api_client, settings, namespaces, metrics_url, own_namespace=own_namespace)
        stack.push_async_callback(reader.close)
        job = ReplayJob(["--kubeconfig", str(kubeconfig)], [])
        stack.push_async_callback(job.close)
        sources = UiSources(reader, job, PageRenderer(settings.unit_mib, "prod-eu (10.0.0.1:6443)"), report_file)
        listener = open_listener("127.0.0.1", 0)
        gate = AccessGate(listener.getsockname()[1])
        app = GuardedApp(build_ui_app(sources), gate)
        server = build_server(app, tls=None, receive_seconds=10, limits=CALLED_BY_A_BROWSER)
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def stop() -> None:
            server.should_exit = True
            await serving

        stack.push_async_callback(stop)
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, not of a name
        site = UiSite(gate, await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar)), api, job)
        if is_logged_in:
            await site.log_in()
        yield site


@asynccontextmanager
async def run_authorizer(upstream: str, rights: PodRights) -> AsyncIterator[str]:
    """The API server at `upstream` as somebody with these rights finds it."""
    async with aiohttp.ClientSession() as session:

        async def answer(request: web.Request) -> web.Response:
            parts = request.path.removeprefix("/api/v1/").split("/")
            if parts == ["namespaces"] and rights.all_namespaces is not None:
                listed = [{"metadata": {"name": name}} for name in rights.all_namespaces]
                return web.json_response(
                    {"kind": "NamespaceList", "metadata": {"resourceVersion": "1"}, "items": listed}
                )
            is_allowed = (rights.may_list_nodes and parts == ["nodes"]) or (
                parts[0] == "namespaces" and parts[1:2] and parts[1] in rights.namespaces
            )
            if not is_allowed:
                return web.json_response({"kind": "Status", "reason": "Forbidden", "message": request.path}, status=403)
            async with session.get(upstream + request.path_qs) as found:
                return web.Response(body=await found.read(), status=found.status, content_type="application/json")

        async with _serve_get(answer) as url:
            yield url


@asynccontextmanager
async def run_metrics_page(text: str) -> AsyncIterator[str]:
    """A page of metrics, as an extender has it."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text)

    async with _serve_get(answer) as url:
        yield f"{url}/metrics"


@asynccontextmanager
async def _serve_get(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
