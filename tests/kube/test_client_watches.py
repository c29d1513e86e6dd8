"""A watch through the client: its lines, and what each way of ending means."""

from __future__ import annotations

import pytest

from tests.kube.client_harness import SOON, ClientHarness
from vrampack.kube.errors import NoAnswerError, RefusedError, ResourceExpiredError, SilentWatchError


async def test_a_watch_gives_one_line_per_event_until_the_server_ends_it(setting: ClientHarness) -> None:
    since = str(setting.server.resource_version)
    async with setting.api.watch("pods", since, server_seconds=1, silence_seconds=SOON) as lines:
        setting.server.patch("pods", "p", {"metadata": {"labels": {"a": "b"}}})
        assert b'"type":"MODIFIED"' in await lines.readany()
        rest = b""
        while piece := await lines.readany():
            rest += piece
        assert b'"type":"BOOKMARK"' not in rest
    (watch,) = setting.proxy.matching("GET", "watch")
    query = f"watch=true&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=1"
    assert watch.target == f"/api/v1/pods?{query}"
    assert setting.calls.made == [("watch", "pods", 200)]


async def test_a_watch_that_is_silent_for_too_long_is_given_up(setting: ClientHarness) -> None:
    with pytest.raises(SilentWatchError, match=r"nothing received for 0\.1 s"):
        await setting.watch_to_its_end(silence_seconds=0.1)
    await setting.proxy.finished("GET", "watch")


async def test_a_watch_without_a_response_counts_as_silent(setting: ClientHarness) -> None:
    setting.proxy.freeze_watches()
    with pytest.raises(SilentWatchError):
        async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=0.1):
            pass


WATCH_ERRORS: dict[int, type[Exception]] = {410: ResourceExpiredError, 403: RefusedError, 500: NoAnswerError}


@pytest.mark.parametrize(("status", "error"), WATCH_ERRORS.items())
async def test_a_refused_watch_raises_the_error_for_its_status(
    setting: ClientHarness, status: int, error: type[Exception]
) -> None:
    setting.proxy.when("GET", "watch").answer(status)
    with pytest.raises(error):
        async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=SOON):
            pass
    assert setting.calls.made == [("watch", "pods", status)]


async def test_a_watch_cut_in_the_middle_is_reported_as_broken_not_silent(setting: ClientHarness) -> None:
    with pytest.raises(NoAnswerError) as caught:
        await setting.watch_to_its_end(on_line=setting.proxy.cut_watches)
    assert not isinstance(caught.value, SilentWatchError)


async def test_leaving_a_watch_closes_its_connection(setting: ClientHarness) -> None:
    async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=SOON):
        pass
    assert [watch.outcome for watch in await setting.proxy.finished("GET", "watch")] == ["caller left"]
