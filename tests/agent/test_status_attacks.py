"""Crowds of half-sent requests at the agent's port, as any pod can send them, while containers start: none is refused."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.agent.agent_harness import NODE, V100_MIB, records_for
from tests.fakes.kubelet.pods import KubeletPod, kubelet_pod
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.fakes.nvml.profiles import PROFILES
from tests.support.agent_process import AgentProcess, run_agent
from tests.support.builders import snapshot_node
from vrampack.agent.status.bounded_server import STATUS_CONNECTIONS
from vrampack.cli.agent import MAX_DESCRIPTORS

HALF_SENT = int(os.environ.get("VRAMPACK_HALF_SENT", "500"))
"""Of which each but those of the last moments has been cut. The acceptance is 10,000."""
PODS = 20
"""That send them, each from an address of its own."""
DESCRIPTORS = 256
"""More than the agent and a full listener need, and less than half of the crowd."""
GROWTH_BYTES = 24 << 20
HALF = b"GET /metrics HTTP/1.1\r\nHost: agent\r\nX-Padding: "


@dataclass(slots=True)
class Crowd:
    """Connections of tenants' pods, none of which the tenants close."""

    port: int
    sockets: list[socket.socket] = field(default_factory=list)

    async def send_half_requests(self) -> None:
        loop = asyncio.get_running_loop()
        for number in range(HALF_SENT):
            made = socket.socket()
            self.sockets.append(made)
            made.setblocking(False)  # noqa: FBT003 - the socket's own signature
            made.bind((f"127.0.1.{number % PODS + 1}", 0))
            await loop.sock_connect(made, ("127.0.0.1", self.port))
            await loop.sock_sendall(made, HALF)

    def close(self) -> None:
        for each in self.sockets:
            each.close()


async def start_pod(running: AgentProcess, name: str) -> KubeletPod:
    """A pod with 4 of the card's 15 units, bound and started. Raises `StartRefusedError`."""
    pod = kubelet_pod(name, units=4)
    pod.spec["spec"]["nodeName"] = NODE
    node = snapshot_node(NODE, units=[15], memory_mib=[V100_MIB])
    card = replace(node.cards[0], uuid=PROFILES["v100"][0].uuid)
    pod.annotations.update(records_for(pod, replace(node, cards=(card,)), [0]))
    running.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
    assert await running.kubelet.admit(pod)
    await running.kubelet.start(pod, "main")
    return pod


def read_resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def count_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.fixture
def soft_limit() -> Iterator[int]:
    """The limit of open files, restored after the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_half_sent_requests_block_neither_starts_nor_probes(soft_limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))  # what the agent is given, and raises
    async with run_agent(PROFILES["v100"], "--log-level", "warning") as running:
        await running.wait_until_registered()
        units = {"status": {"capacity": {MEMORY: "15"}, "allocatable": {MEMORY: "15"}}}
        running.api.patch(
            "nodes", NODE, units, is_status=True
        )  # as kubelet does; otherwise the agent registers again after 30 s
        pid, port = running.process.pid, int(running.health.rpartition(":")[2])
        raised = resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        assert raised == (min(hard, MAX_DESCRIPTORS), hard)
        before, descriptors, starts = read_resident_bytes(pid), 0, 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft_limit, HALF_SENT + 1000)), hard))
        crowd = Crowd(port)
        sending = asyncio.create_task(crowd.send_half_requests())
        try:
            while not sending.done() or starts < 5:
                pod = await start_pod(running, f"p{starts}")
                starts += 1
                assert [await running.get(path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
                descriptors = max(descriptors, count_descriptors(pid))
                running.kubelet.remove(pod)
                running.api.delete("pods", pod.name, grace_seconds=0)
            await sending
            _, page = await running.get("/metrics")
        finally:
            sending.cancel()
            crowd.close()
        growth = read_resident_bytes(pid) - before
        sys.stdout.write(
            f"{HALF_SENT} half-sent: {starts} starts, {descriptors} descriptors, {growth >> 10} KiB more\n"
        )
    assert f'vrampack_agent_starts_total{{result="ok"}} {starts}.0' in page
    assert descriptors <= STATUS_CONNECTIONS.total + 100
    assert growth < GROWTH_BYTES
