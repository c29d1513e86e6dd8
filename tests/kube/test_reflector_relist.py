"""When a reflector lists again, when it resumes, and what counts as an answer of the API server."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from tests.fakes.faults import api_status
from tests.kube.reflector_harness import LIST, WATCH, ReflectorHarness, open_harness
from tests.kube.sinks import run_reflector
from vrampack.kube.retry_backoff import AFTER_SPREAD


@pytest.fixture
async def setting() -> AsyncIterator[ReflectorHarness]:
    async with open_harness() as harness:
        yield harness


def error_event(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": api_status(code)}).encode() + b"\n"


REFUSALS: dict[str, tuple[int, bytes | None]] = {
    "403": (403, None),
    "404": (404, None),
    "500": (500, None),
    "503": (503, None),
    "504": (504, None),
    "an event of 403": (200, error_event(403)),
    "an event of 500": (200, error_event(500)),
    "an event of 504": (200, error_event(504)),
}


@pytest.mark.parametrize(("status", "body"), REFUSALS.values(), ids=REFUSALS)
async def test_a_watch_that_ends_with_an_error_causes_a_new_list(
    setting: ReflectorHarness, status: int, body: bytes | None
) -> None:
    """Such a server may have any idea of the version; the list has what the watch missed, so only the list is trusted."""
    setting.create("a")
    setting.proxy.when("GET", WATCH).answer(status, body)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a")
        setting.create("b")
        await setting.sink.told_of("a", "b")
        assert setting.sink.words == setting.sink.told.count("list ends")
    assert setting.sink.lists == ["start", "error"]


async def test_a_watch_cut_before_its_answer_causes_a_new_list(setting: ReflectorHarness) -> None:
    setting.proxy.when("GET", WATCH).cut(times=2)  # the client repeats the request by itself on a kept-alive connection
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.until(lambda: setting.sink.lists == ["start", "error"])


THROTTLED: dict[str, tuple[int, bytes | None]] = {"429": (429, None), "an event of 429": (200, error_event(429))}


@pytest.mark.parametrize(("status", "body"), THROTTLED.values(), ids=THROTTLED)
async def test_a_throttled_watch_does_not_cause_a_new_list(
    setting: ReflectorHarness, status: int, body: bytes | None
) -> None:
    setting.create("a")
    throttled = setting.proxy.when("GET", WATCH).answer(status, body, times=2)
    async with run_reflector(setting.api, setting.sink):
        await setting.proxy.reached(throttled, 2)
        assert setting.sink.words == 1
        setting.create("b")
        await setting.sink.told_of("a", "b")
    assert setting.sink.lists == ["start"]


def throttling_event(seconds: int) -> bytes:
    status = api_status(429) | {"details": {"retryAfterSeconds": seconds}}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


ASKED_PAUSES: dict[str, tuple[str, int, bytes | None]] = {
    "a list": (LIST, 429, None),
    "a list of a server that is not ready": (LIST, 503, None),
    "a watch": (WATCH, 429, None),
    "an event": (WATCH, 200, throttling_event(1)),
}


@pytest.mark.parametrize(("pattern", "status", "body"), ASKED_PAUSES.values(), ids=ASKED_PAUSES)
async def test_the_api_server_is_left_alone_for_as_long_as_it_asked(
    setting: ReflectorHarness, pattern: str, status: int, body: bytes | None
) -> None:
    """The first pause of our own is 0.8 s at most."""
    setting.proxy.when("GET", pattern).answer(status, body, headers={"Retry-After": "1"}, times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.proxy.seen("GET", pattern)
        began = time.monotonic()
        await setting.proxy.seen("GET", pattern, 2)
        assert 0.95 < time.monotonic() - began < AFTER_SPREAD + 1


async def test_several_watches_without_an_event_cause_a_new_list(setting: ReflectorHarness) -> None:
    """One may be a server that is stopping; several mean that the server sends nothing from this version."""
    setting.create("a")
    setting.proxy.when("GET", WATCH).answer(200, b"", times=3)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a")
        await setting.proxy.seen("GET", LIST, 2)
    assert setting.sink.lists == ["start", "no_progress"]
    assert setting.proxy.count("GET", WATCH) == 3


async def test_single_pages_and_an_opened_watch_do_not_count_as_answers(setting: ReflectorHarness) -> None:
    """Half a list is not trusted, and headers may come from a proxy in front of the API server."""
    setting.create(*(f"p{at:04}" for at in range(51)))
    page = setting.proxy.when("GET", r"continue=").hold(times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.until(lambda: "page 50" in setting.sink.told)
        await setting.proxy.reached(page)
        assert setting.sink.words == 0
        page.release()
        await setting.proxy.seen("GET", WATCH)
        setting.create("open")
        await setting.sink.until(lambda: "changed open" in setting.sink.told)
    assert setting.sink.words == 2


async def test_a_requested_list_runs_after_the_watch_ends(setting: ReflectorHarness) -> None:
    setting.create("a")
    async with run_reflector(setting.api, setting.sink) as reflector:
        await setting.watching("a")
        reflector.request_list()
        setting.create("b")
        await setting.sink.told_of("a", "b", "open")
        assert setting.sink.lists == ["start"]
        setting.server.cut_watches()
        await setting.sink.until(lambda: setting.sink.lists == ["start", "requested"])
