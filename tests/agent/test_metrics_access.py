"""Which tokens the API server is asked about, and for how long its answer is cached."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from vrampack.agent.status.metrics_access import (
    ALLOWED_SECONDS,
    MAX_VERDICTS,
    REFUSED_SECONDS,
    STRANGERS_PER_PEER,
    STRANGERS_PER_SECOND,
    MetricsAccess,
)
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.simulator.kubeconfig import write_kubeconfig

USERS = {"scraper-token": "scraper", "stranger-token": "stranger"}


@dataclass(slots=True)
class ReviewingServer:
    """An API server that knows two tokens, of which one may read the page."""

    readers: set[str] = field(default_factory=lambda: {"scraper"})
    reviewed: list[str] = field(default_factory=list)
    is_down: bool = False
    url: str = ""

    async def answer_token_review(self, request: web.Request) -> web.Response:
        if self.is_down:
            raise web.HTTPServiceUnavailable
        token = (await request.json())["spec"]["token"]
        self.reviewed.append(token)
        user = {"username": USERS.get(token, ""), "groups": ["g"], "extra": {"k": ["v"]}}
        status = {"authenticated": token in USERS, "user": user}
        return web.json_response({"kind": "TokenReview", "status": status}, status=201)

    async def answer_access_review(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert (spec["groups"], spec["extra"]) == (["g"], {"k": ["v"]})
        status = {"allowed": spec["user"] in self.readers}
        return web.json_response({"kind": "SubjectAccessReview", "status": status}, status=201)


@dataclass(slots=True)
class AccessBench:
    """A listener's access check, its clock, and the API server behind it."""

    server: ReviewingServer
    access: MetricsAccess
    clock: list[float]

    async def ask(self, token: str, *, peer: str = "10.0.0.1") -> HTTPStatus:
        return await self.access.check_caller(f"Bearer {token}".encode(), peer=peer)


@asynccontextmanager
async def run_bench(folder: Path) -> AsyncIterator[AccessBench]:
    server = ReviewingServer()
    app = web.Application()
    app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", server.answer_token_review)
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", server.answer_access_review)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = Api(await load_credentials(write_kubeconfig(folder, f"http://127.0.0.1:{runner.addresses[0][1]}")))
    clock = [1000.0]
    try:
        yield AccessBench(server, MetricsAccess(api, "/metrics", clock=lambda: clock[0]), clock)
    finally:
        await api.close()
        await runner.cleanup()


async def test_an_access_review_is_cached_for_a_while(tmp_path: Path) -> None:
    async with run_bench(tmp_path) as bench:
        for _ in range(3):
            assert await bench.ask("scraper-token") is HTTPStatus.OK
            assert await bench.ask("stranger-token") is HTTPStatus.FORBIDDEN
        assert bench.server.reviewed == ["scraper-token", "stranger-token"]
        bench.server.readers = {"stranger"}
        bench.clock[0] += REFUSED_SECONDS
        assert await bench.ask("stranger-token") is HTTPStatus.OK
        assert await bench.ask("scraper-token") is HTTPStatus.OK
        bench.clock[0] += ALLOWED_SECONDS
        assert await bench.ask("scraper-token") is HTTPStatus.FORBIDDEN


async def test_a_malformed_bearer_token_is_not_reviewed(tmp_path: Path) -> None:
    basic = b"Basic " + base64.b64encode(b"scraper:scraper-token")
    async with run_bench(tmp_path) as bench:
        assert [await bench.access.check_caller(each, peer="10.0.0.1") for each in (b"", basic)] == [
            HTTPStatus.UNAUTHORIZED
        ] * 2
        assert bench.server.reviewed == []


async def test_invented_tokens_are_rate_limited_and_evict_no_cached_scraper(tmp_path: Path) -> None:
    async with run_bench(tmp_path) as bench:
        assert await bench.ask("scraper-token") is HTTPStatus.OK
        bench.clock[0] += 1
        said = [await bench.ask(f"made-up-{number}", peer=str(number)) for number in range(STRANGERS_PER_SECOND + 3)]
        assert said == [HTTPStatus.UNAUTHORIZED] * STRANGERS_PER_SECOND + [HTTPStatus.TOO_MANY_REQUESTS] * 3
        for number in range(MAX_VERDICTS * 2):
            bench.clock[0] += 1 if number % STRANGERS_PER_SECOND == 0 else 0
            await bench.ask(f"other-{number}", peer=str(number))
        bench.clock[0] += ALLOWED_SECONDS
        for number in range(STRANGERS_PER_SECOND):  # the second's share is used up
            await bench.ask(f"last-{number}", peer=str(number))
        assert await bench.ask("scraper-token") is HTTPStatus.OK


async def test_one_address_cannot_use_up_the_reviews_for_a_new_scraper(tmp_path: Path) -> None:
    async with run_bench(tmp_path) as bench:
        said = [await bench.ask(f"made-up-{number}", peer="10.0.0.2") for number in range(20)]
        assert said.count(HTTPStatus.UNAUTHORIZED) == STRANGERS_PER_PEER
        assert await bench.ask("scraper-token") is HTTPStatus.OK


async def test_without_an_api_server_callers_are_refused_and_nothing_is_cached(tmp_path: Path) -> None:
    async with run_bench(tmp_path) as bench:
        bench.server.is_down = True
        assert await bench.ask("scraper-token") is HTTPStatus.SERVICE_UNAVAILABLE
        bench.server.is_down = False
        bench.clock[0] += 1
        assert await bench.ask("scraper-token") is HTTPStatus.OK
