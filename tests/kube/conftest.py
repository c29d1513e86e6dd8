"""The client that several files test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.proxy import FaultProxy
from tests.kube.client_harness import ClientHarness
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.simulator.apiserver import ApiServer


@pytest.fixture
async def setting() -> AsyncIterator[ClientHarness]:
    calls = RecordedApiCalls()
    async with (
        ApiServer() as server,
        FaultProxy(int(server.url.rpartition(":")[2])) as proxy,
        open_api(proxy.url, calls) as api,
    ):
        yield ClientHarness(server, proxy, api, calls)
