"""The listeners of the real process: probes that no crowd keeps out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import recorded_requests
from tests.support.extender_process import ExtenderProcess, run_extender_process
from tests.support.verb_listener import Address, build_request, open_connection, read_reply
from vrampack.simulator.apiserver import ApiServer

HEALTHZ = build_request("/healthz", b"", method="GET")
CROWD = 512


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        for node in recorded_requests.recorded_nodes():
            server.restore({"kind": "Node", **node})
        yield server


def _address(url: str) -> Address:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(
    ("listener", "beginning"),
    [("verbs", b""), ("health", HEALTHZ), ("health", HEALTHZ[:20])],
    ids=["verbs, silent", "health, idle", "health, half a request"],
)
async def test_a_crowd_of_connections_keeps_no_probe_out(
    api: ApiServer, tmp_path: Path, listener: str, beginning: bytes
) -> None:
    async with run_extender_process(tmp_path, api.url) as service:
        await service.wait_until_ready()
        address = _address(getattr(service, listener))
        with ExitStack() as stack:
            for client in [stack.enter_context(open_connection(address)) for _ in range(CROWD)]:
                client.sendall(beginning)
            assert [await _probe(service, listener) for _ in range(6)] == [200] * 6


async def _probe(service: ExtenderProcess, listener: str) -> int:
    """As kubelet does, by a connection of its own."""
    with open_connection(_address(getattr(service, listener))) as client:
        client.sendall(HEALTHZ)
        return read_reply(client)[0]
