"""A sink stays in step with the API server: through pages, cuts, expired versions, silence and damaged objects."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest

from tests.fakes.proxy import FaultProxy
from tests.kube.reflector_harness import LIST, NEXT_PAGE, WATCH, ReflectorHarness, open_harness, port_of
from tests.kube.sinks import run_reflector
from vrampack.kube.objects import PodObject
from vrampack.kube.reflector import Reflector
from vrampack.simulator.apiserver import ApiServer


@pytest.fixture
async def setting() -> AsyncIterator[ReflectorHarness]:
    async with open_harness() as harness:
        yield harness


async def test_the_sink_gets_the_list_and_then_every_change(setting: ReflectorHarness) -> None:
    setting.create("a", "b")
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a", "b")
        setting.create("c")
        setting.label("a")
        setting.server.delete("pods", "b")
        await setting.sink.until(lambda: "gone b" in setting.sink.told)
    assert setting.sink.names == ["a", "c"]
    # A delete without grace period is two changes: marked, then removed.
    steps = ["list start", "page 2", "list ends", "changed c", "changed a", "changed b", "gone b"]
    assert setting.sink.told == steps
    assert setting.sink.objects["a"].metadata.labels is not None


async def test_a_list_of_many_comes_in_growing_pages_and_the_watch_begins_at_its_version(
    setting: ReflectorHarness,
) -> None:
    names = [f"p{at:04}" for at in range(1300)]
    setting.create(*names)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of(*names)
        await setting.proxy.seen("GET", WATCH)
    pages = ["page 50", "page 100", "page 200", "page 400", "page 500", "page 50"]
    assert setting.sink.told == ["list start", *pages, "list ends"]
    assert setting.proxy.count("GET", LIST) == len(pages)
    assert setting.since() == [setting.server.resource_version]


async def test_no_list_is_read_from_a_stale_cache(setting: ReflectorHarness) -> None:
    """`resourceVersion=0` would be: after a restart it may show a time before the last Binding."""
    async with run_reflector(setting.api, setting.sink):
        await setting.proxy.seen("GET", WATCH)
    assert [exchange.target for exchange in setting.proxy.matching("GET", LIST)] == ["/api/v1/pods?limit=50"]


async def test_what_happens_between_two_pages_is_not_lost(setting: ReflectorHarness) -> None:
    names = [f"p{at:04}" for at in range(51)]
    setting.create(*names)
    page = setting.proxy.when("GET", NEXT_PAGE).hold(times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.proxy.reached(page)
        setting.create("between")
        setting.server.delete("pods", names[0])
        page.release()
        await setting.sink.told_of(*names[1:], "between")
    assert setting.sink.lists == ["start"]


async def test_what_happens_between_list_and_watch_is_not_lost(setting: ReflectorHarness) -> None:
    setting.create("a", "b")
    watch = setting.proxy.when("GET", WATCH).hold(times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.proxy.reached(watch)
        setting.create("between")
        setting.server.delete("pods", "a")
        watch.release()
        await setting.sink.told_of("b", "between")
    assert setting.sink.lists == ["start"]


async def test_after_a_cut_the_watch_resumes_at_its_version(setting: ReflectorHarness) -> None:
    setting.create("a")
    async with run_reflector(setting.api, setting.sink):
        await setting.watching("a")
        seen = setting.server.resource_version
        again = setting.proxy.when("GET", WATCH).hold(times=1)
        setting.server.cut_watches()
        await setting.proxy.reached(again)
        setting.create("while-cut")
        setting.server.delete("pods", "a")
        again.release()
        await setting.sink.told_of("open", "while-cut")
    assert setting.sink.lists == ["start"]
    assert setting.since()[1] == seen


async def test_an_event_cut_in_the_middle_is_reported_once_and_complete(setting: ReflectorHarness) -> None:
    """The connection breaks during the watch's second event; the half that arrived is not reported."""
    setting.create("a")
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of("a")
        for at in range(20):
            setting.label("a")
            if at % 5 == 0:
                setting.server.cut_watches()
            want = str(setting.server.resource_version)
            await setting.sink.until(lambda want=want: setting.sink.objects["a"].metadata.resource_version == want)  # type: ignore[misc]
    assert setting.sink.told.count("changed a") == 20
    assert setting.sink.lists == ["start"]


@pytest.mark.parametrize("form", ["status", "event"])
async def test_an_expired_version_causes_a_new_list(setting: ReflectorHarness, form: str) -> None:
    setting.create("a", "b")
    async with run_reflector(setting.api, setting.sink):
        await setting.watching("a", "b")
        if form == "status":
            setting.proxy.when("GET", WATCH).gone(times=1)
            setting.server.cut_watches()
        else:
            setting.proxy.expire_watches()
        await setting.sink.until(lambda: setting.sink.lists == ["start", "expired"])
        setting.create("c")
        await setting.sink.told_of("a", "b", "c", "open")


async def test_objects_deleted_while_the_history_expired_are_removed_by_the_new_list(setting: ReflectorHarness) -> None:
    setting.create("a", "b")
    async with run_reflector(setting.api, setting.sink):
        await setting.watching("a", "b")
        again = setting.proxy.when("GET", WATCH).hold(times=1)
        setting.server.cut_watches()
        await setting.proxy.reached(again)
        setting.server.delete("pods", "a")
        setting.server.compact()
        again.release()
        await setting.sink.told_of("b", "open")
    assert setting.sink.lists == ["start", "expired"]
    assert "gone a" not in setting.sink.told


async def test_a_list_that_expires_between_two_pages_begins_again(setting: ReflectorHarness) -> None:
    names = [f"p{at:04}" for at in range(51)]
    setting.create(*names)
    setting.proxy.when("GET", NEXT_PAGE).gone(times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of(*names)
    assert setting.sink.told == ["list start", "page 50", "list expired", "page 50", "page 1", "list ends"]


async def test_a_list_that_is_cut_between_two_pages_begins_again(setting: ReflectorHarness) -> None:
    names = [f"p{at:04}" for at in range(51)]
    setting.create(*names)
    setting.proxy.when("GET", NEXT_PAGE).cut(times=1)
    async with run_reflector(setting.api, setting.sink):
        await setting.sink.told_of(*names)
    assert setting.sink.told.count("list ends") == 1


async def test_a_bookmark_counts_as_an_answer_and_advances_the_version(setting: ReflectorHarness) -> None:
    """Pods are quiet while nodes change; without the bookmark the next watch would begin at an expired version."""
    async with run_reflector(setting.api, setting.sink):
        await setting.watching()
        for at in range(5):
            setting.server.create({"kind": "Node", "metadata": {"name": f"n{at}"}})
        words, told = setting.sink.words, list(setting.sink.told)
        setting.server.send_bookmarks()
        await setting.sink.until(lambda: setting.sink.words > words)
        setting.server.cut_watches()
        await setting.proxy.seen("GET", WATCH, 2)
    assert setting.since()[1] == setting.server.resource_version
    assert setting.sink.told == told


async def test_every_kind_of_event_advances_the_version(setting: ReflectorHarness) -> None:
    """Even a deletion: otherwise the next watch would report it again, after a namesake that was created since."""
    async with run_reflector(setting.api, setting.sink):
        await setting.watching()
        wanted = []
        for number, change in enumerate(("create", "label", "delete"), start=2):
            before, last = len(setting.sink.told), "gone a" if change == "delete" else "changed a"
            apply_change(setting, change)
            wanted.append(setting.server.resource_version)
            await setting.sink.until(lambda: setting.sink.told[before:][-1:] == [last])  # noqa: B023 - awaited in its turn
            setting.server.cut_watches()
            await setting.proxy.seen("GET", WATCH, number)
    assert setting.since()[1:] == wanted
    timeouts = [re.findall(r"timeoutSeconds=(\d+)", watch.target) for watch in setting.proxy.matching("GET", WATCH)]
    assert all(240 <= int(seconds) <= 300 for (seconds,) in timeouts)


def apply_change(setting: ReflectorHarness, change: str) -> None:
    if change == "create":
        setting.create("a")
    elif change == "label":
        setting.label("a")
    else:
        setting.server.delete("pods", "a")


async def test_a_watch_silent_from_the_start_causes_a_new_list(setting: ReflectorHarness) -> None:
    setting.create("a")
    async with run_reflector(setting.api, setting.sink, silence_seconds=0.2):
        await setting.sink.until(lambda: setting.sink.lists[:3] == ["start", "silent", "silent"])
    assert setting.proxy.count("GET", LIST) - setting.proxy.count("GET", WATCH) in (0, 1)


async def test_a_watch_that_falls_silent_later_resumes_at_its_version(setting: ReflectorHarness) -> None:
    """The connection died, but its version was good, and listing everything again would cost a large cluster much."""
    setting.create("a")
    async with run_reflector(setting.api, setting.sink, silence_seconds=0.4):
        again = setting.proxy.when("GET", WATCH).hold()
        await setting.proxy.reached(again)
        again.stop()
        again.release()
        await setting.watching("a")
        await setting.proxy.seen("GET", WATCH, 2)
    assert setting.sink.lists == ["start"]
    assert setting.since()[1] == setting.server.resource_version


async def test_an_api_server_restored_from_a_backup_is_listed_again(setting: ReflectorHarness) -> None:
    """It has not reached the version that was seen last, and sends nothing until it has."""
    setting.create("a", "b", "c", "d")
    async with run_reflector(setting.api, setting.sink, silence_seconds=0.2):
        await setting.watching("a", "b", "c", "d")
        seen = setting.server.resource_version
        await setting.proxy.close()
        async with (
            ApiServer() as setting.server,
            FaultProxy(port_of(setting.server), port=setting.proxy.port) as restored,
        ):
            setting.create("a")
            await setting.sink.told_of("a")
            setting.create("e")
            await setting.sink.told_of("a", "e")
            first = restored.matching("GET", WATCH)[0]
    assert f"resourceVersion={seen}&" in first.target
    assert setting.sink.lists[:2] == ["start", "silent"]


async def test_an_api_server_that_comes_back_is_followed_again(setting: ReflectorHarness) -> None:
    async with run_reflector(setting.api, setting.sink):
        await setting.watching()
        await setting.proxy.close()
        setting.create("b")
        await setting.proxy.start()
        await setting.sink.told_of("b", "open")
    assert setting.sink.lists == ["start"]


FIRST_WAITS_SECONDS = (0.8 + 1.6) / 2
"""The shortest two waits between three attempts; on loopback an attempt takes a thousandth of that."""

REFUSING: dict[str, tuple[str, int]] = {
    "every list fails": (LIST, 500),
    "every list is forbidden": (LIST, 403),
    "every list has expired": (LIST, 410),
    "every watch fails": (WATCH, 503),
    "every watch has expired": (WATCH, 410),
    "every watch ends at once": (WATCH, 200),
}


@pytest.mark.parametrize(("pattern", "status"), REFUSING.values(), ids=REFUSING)
async def test_repeated_failures_are_retried_with_growing_pauses(
    setting: ReflectorHarness, pattern: str, status: int
) -> None:
    setting.proxy.when("GET", pattern).answer(status, b"" if status == 200 else None)
    async with run_reflector(setting.api, setting.sink):
        began = time.monotonic()
        await setting.proxy.seen("GET", pattern, 3)
        assert time.monotonic() - began > FIRST_WAITS_SECONDS * 0.9
        assert setting.proxy.count("GET", "") <= 8


async def test_repeated_expiry_events_are_retried_with_growing_pauses(setting: ReflectorHarness) -> None:
    expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    setting.proxy.when("GET", WATCH).answer(200, expired)
    async with run_reflector(setting.api, setting.sink):
        began = time.monotonic()
        await setting.proxy.seen("GET", WATCH, 3)
        assert time.monotonic() - began > FIRST_WAITS_SECONDS * 0.9


async def test_cancellation_ends_a_reflector_and_its_connection(setting: ReflectorHarness) -> None:
    task = asyncio.create_task(Reflector(setting.api, "pods", PodObject, setting.sink).run())
    await setting.proxy.seen("GET", WATCH)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [watch.outcome for watch in await setting.proxy.finished("GET", WATCH)] == ["caller left"]


async def test_cancellation_ends_a_waiting_reflector(setting: ReflectorHarness) -> None:
    setting.proxy.when("GET", LIST).answer(500)
    task = asyncio.create_task(Reflector(setting.api, "pods", PodObject, setting.sink).run())
    await setting.proxy.seen("GET", LIST, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
