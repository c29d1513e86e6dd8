"""When 401 and 403 make the service unready: when nothing else comes, and the API server says that the account lacks the right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from extender.metrics import ExtenderMetrics
from extender.state.denied_calls import DENIED_CALLS, DENIED_SECONDS, DeniedCalls
from tests.fakes.proxy import FaultProxy
from tests.support.recorded_api_calls import open_api
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.simulator.apiserver import ApiServer

REVIEWS = "/selfsubjectaccessreviews$"
BINDINGS = "/binding$"


class Denied:
    """An account behind a proxy that can be told what the API server answers."""

    def __init__(self, proxy: FaultProxy, api: Api) -> None:
        self.proxy, self._api = proxy, api
        self.seconds = 100.0
        self.metrics = ExtenderMetrics("test")
        self.calls = DeniedCalls(api, self.metrics, lambda: self.seconds)

    async def bind(self, times: int = 1) -> None:
        for _ in range(times):
            with suppress(RefusedError, NoAnswerError):
                await self._api.bind("default", "p", "uid", "n", {}, timeout_seconds=5)

    async def find_reason(self, *, later: float = 0.0) -> str:
        self.seconds += later
        await self.calls.review_rights()
        reason = self.calls.find_unready_reason()
        assert self.metrics.registry.get_sample_value("vrampack_apiserver_denied") == bool(reason)
        return reason

    def answer_reviews(self, *, allowed: bool) -> Callable[[], None]:
        review = {"kind": "SelfSubjectAccessReview", "metadata": {}, "status": {"allowed": allowed}}
        return self.proxy.when("POST", REVIEWS).answer(201, review).stop


@pytest.fixture
async def account() -> AsyncIterator[Denied]:
    async with (
        ApiServer() as server,
        FaultProxy(int(server.url.rpartition(":")[2])) as proxy,
        open_api(proxy.url) as api,
    ):
        yield Denied(proxy, api)


async def test_an_account_that_lost_its_rights_is_unready_until_it_has_them_again(account: Denied) -> None:
    account.proxy.when("POST", BINDINGS).answer(403)
    denied = account.answer_reviews(allowed=False)
    await account.bind(DENIED_CALLS - 1)
    assert await account.find_reason(later=DENIED_SECONDS) == ""
    await account.bind()
    reason = await account.find_reason()
    assert reason == "the API server does not let this account create pods/binding: see its ClusterRoleBinding"
    denied()
    account.proxy.when("POST", REVIEWS).answer(500, times=1)
    assert await account.find_reason() == reason
    account.answer_reviews(allowed=True)
    assert await account.find_reason() == ""


async def test_credentials_that_are_no_longer_known_are_named(account: Denied) -> None:
    """One call that is answered ends it, whatever the last review said."""
    binding = account.proxy.when("POST", BINDINGS).answer(401)
    account.proxy.when("POST", REVIEWS).answer(401)
    await account.bind(DENIED_CALLS)
    assert await account.find_reason(later=DENIED_SECONDS - 1) == ""
    reason = await account.find_reason(later=1)
    assert reason.startswith("the API server denies every call of this account: 401 Unauthorized")
    binding.stop()
    await account.bind()  # 404: there is no such pod
    assert account.calls.find_unready_reason() == ""


@pytest.mark.parametrize(("between", "asked"), [(404, False), (409, False), (429, True), (500, True), (502, True)])
async def test_only_an_answer_to_a_call_that_was_let_through_counts_against_it(
    account: Denied, between: int, *, asked: bool
) -> None:
    """What a webhook refuses for one node is no lack of rights, and silence says nothing."""
    account.answer_reviews(allowed=False)
    html = b"<html></html>" if between == 502 else None
    account.proxy.when("POST", BINDINGS).answer(403, times=2)
    account.proxy.when("POST", BINDINGS).answer(between, html, times=1)
    account.proxy.when("POST", BINDINGS).answer(403)
    await account.bind(4)
    assert bool(await account.find_reason(later=DENIED_SECONDS)) is asked
