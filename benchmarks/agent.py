"""What the agent costs a node: kubelet's time, memory, and a core's time while nothing happens.

It measures a real `vrampack agent` on a node with eight H200, which are 1,120 devices, with a simulated NVIDIA library in C, a
simulated kubelet that speaks real gRPC, and an API server over loopback. The agent runs on every GPU node, all the time, beside
what people pay for. The figures do not tell how long the real driver takes to answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.cpu_meter import CpuMeter
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_percentile
from tests.agent.agent_harness import records_for
from tests.fakes.kubelet.pods import KubeletPod, kubelet_pod
from tests.fakes.nvml.profiles import PROFILES, StubGpu
from tests.support.agent_process import NODE, AgentProcess, run_agent
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as wire
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import DevicePluginStub
from vrampack.cards.node import Card, Node, NodeFacts, build_node

PROFILE = "h200x8"
UNIT_MIB = 1024
POD_COUNT = 100
UNITS_PER_POD = 4
ALLOCATIONS = 1000
IDLE_SECONDS = 25
COMMAND = "python -m benchmarks agent"


@dataclass(frozen=True, slots=True)
class _AgentFigures:
    allocate_ms: list[float]
    resident_mb: float
    idle_percent: float
    node_writes: int
    other_cores: float


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure one agent, from its start to its end."""
    pods, calls = options.scale_count(POD_COUNT), options.scale_count(ALLOCATIONS, 10)
    seconds = options.scale_count(IDLE_SECONDS, 1)
    found = asyncio.run(_measure_agent(pods, calls, seconds))
    devices = sum(gpu.memory_mib // UNIT_MIB for gpu in PROFILES[PROFILE])
    p50 = compute_percentile(found.allocate_ms, 0.5)
    what = f"agent, {devices:,} devices"
    figure = compute_percentile(found.allocate_ms, 0.99)
    yield BenchmarkRow(
        "agent-allocate-p99", f"{what}, Allocate, p99", COMMAND, figure, "ms", 20, 30, note=f"p50 {p50:.2f} ms"
    )
    yield BenchmarkRow("agent-rss", f"{what}, {pods} pods, resident", COMMAND, found.resident_mb, "MB", 100, 150)
    note = f"over {seconds} s; the rest of the machine used {found.other_cores:.2f} cores"
    yield BenchmarkRow(
        "agent-idle", f"{what}, {pods} pods, idle", COMMAND, found.idle_percent, "%", 0.5, 0.75, note=note
    )
    yield BenchmarkRow("agent-node-writes", f"{what}, writes of the Node", COMMAND, found.node_writes, "writes", 2, 2)


async def _measure_agent(pods: int, calls: int, seconds: int) -> _AgentFigures:
    async with run_agent(PROFILES[PROFILE]) as agent:
        await agent.wait_until_registered()
        await _start_pods(agent, pods)
        allocate_ms = await _time_allocations(agent, calls)
        pid = agent.process.pid
        meter = CpuMeter({"agent": pid})
        await asyncio.sleep(seconds)
        used = meter.read_usage()
        _, page = await agent.get("/metrics")
        return _AgentFigures(
            allocate_ms=allocate_ms,
            resident_mb=_resident_mb(pid),
            idle_percent=used.seconds_by_process["agent"] / used.wall_seconds * 100,
            node_writes=_read_sample(page, "vrampack_agent_node_writes_total"),
            other_cores=used.other_cores,
        )


async def _start_pods(agent: AgentProcess, count: int) -> None:
    """Start pods that the extender bound, one card after another, through kubelet."""
    gpus = PROFILES[PROFILE]
    node = _build_node(gpus)
    for number in range(count):
        pod = kubelet_pod(f"p{number}", units=UNITS_PER_POD)
        pod.spec["spec"]["nodeName"] = NODE
        pod.annotations.update(records_for(pod, node, [number % len(gpus)]))
        agent.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
        await _admit_pod(agent, pod)


async def _admit_pod(agent: AgentProcess, pod: KubeletPod) -> None:
    if not await agent.kubelet.admit(pod):
        raise RuntimeError(f"{pod.name}: {pod.message}")
    await agent.kubelet.start(pod, "main")
    agent.api.patch("pods", pod.name, {"status": pod.manifest()["status"]}, is_status=True)


async def _time_allocations(agent: AgentProcess, count: int) -> list[float]:
    """The milliseconds of each call, at a client of the plugin's socket."""
    socket = agent.kubelet.plugins_folder / agent.kubelet.history.registrations[-1].endpoint
    ids = [f"{PROFILES[PROFILE][0].uuid}::{number}" for number in range(UNITS_PER_POD)]
    request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
    taken = []
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = DevicePluginStub(channel)
        for _ in range(count):
            begun = time.perf_counter()
            await stub.Allocate(request, timeout=10)
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


def _build_node(gpus: tuple[StubGpu, ...]) -> Node:
    cards = tuple(
        Card(index=index, units=gpu.memory_mib // UNIT_MIB, memory_mib=gpu.memory_mib, uuid=gpu.uuid, model=gpu.name)
        for index, gpu in enumerate(gpus)
    )
    return build_node(NodeFacts(NODE, unit_mib=UNIT_MIB), cards, unit_mib=UNIT_MIB)


def _resident_mb(pid: int) -> float:
    """`VmRSS` in millions of bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) * 1024 / 1e6


def _read_sample(page: str, name: str) -> int:
    return int(float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).rpartition(" ")[2]))
