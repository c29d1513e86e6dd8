"""Names, packets and sizes from a tenant may be any bytes, and never end the agent.

One agent meets cgroup names, process names, lines to the hook's socket, packets to the library's, container ids and sizes that
no honest program makes. `VRAMPACK_ODDITIES=100000` is the long form, a part of `make soak`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import put_bound_pod, run_pod
from tests.fakes.kubelet.pods import KubeletPod
from tests.support.preload_clients import PreloadClient
from vrampack.agent.limits.cgroups import (
    CgroupOwner,
    CgroupTree,
    find_process_owner,
    has_processes,
    list_process_cgroups,
    walk_cgroup,
)
from vrampack.agent.limits.overuse_monitor import OveruseMonitor
from vrampack.agent.limits.preload.peers import is_ending, read_start_ticks
from vrampack.agent.limits.preload.usage_ledger import ProcessKey
from vrampack.agent.limits.preload.wire import LibraryVerdict, MessageKind
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.agent.nvml.driver import GpuProcess, GpuUsage
from vrampack.kube.objects import LocalPodObject

ODDITIES = int(os.environ.get("VRAMPACK_ODDITIES", "900"))
pytestmark = pytest.mark.timeout(60 + ODDITIES // 100)

UID = "1d3a9a10-0000-4000-8000-00000000000a"
PIECES = (
    *(b"kubepods", b"kubepods.slice", b"burstable", b"pod" + UID.encode(), b"a" * 64, b"cri-containerd-" + b"b" * 64),
    *(b"\xff\xfe", b"\x85", b"\xe2\x80\xa8", b"\r", b"\x1b[2J", b" (deleted)", b"..", b".scope", b"crio-conmon-", b":"),
    *(
        b"",
        b") R 1 1",
        b"(",
        b"x" * 200,
        "é\U0001f4a5".encode(),
        b"\xed\xa0\x80",
        b"%n%s",
        b"\x7f",
        b'","ok":true}',
        b"\\u0000",
    ),
)
SIZES = (0, 1, -1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**80)


class OddTenant:
    """Makes one oddity of a kind at a time, from one seed."""

    def __init__(self, world: AgentHarness, pod: KubeletPod, folder: Path) -> None:
        self._dice = random.Random(19)
        self._world = world
        self._pod = pod
        self._proc = folder / "odd-proc"
        (self._proc / "7").mkdir(parents=True)
        self._cgroups = CgroupTree(world.cgroups)
        self._cgroup = world.make_cgroup(pod)
        meter = UsageMeter(self, lambda pid: find_process_owner(pid, self._proc))
        self._monitor = OveruseMonitor(meter, lambda *_: {"GPU-0": 1}, lambda *names: "".join(names), lambda: 0.0)

    @property
    def kinds(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "process": self.make_process,
            "cgroup": self.make_cgroup,
            "hook": self.ask_as_hook,
            "library": self.ask_as_library,
            "size": self.measure_sizes,
            "status": self.report_status,
        }

    async def make_process(self) -> None:
        """A process with an odd name and odd cgroup names."""
        comm = self._make_bytes(15).replace(b"\0", b"")
        numbers = b" ".join(str(self._dice.randrange(2**31)).encode() for _ in range(50))
        (self._proc / "7" / "stat").write_bytes(b"7 (" + comm + b") S " + numbers + b"\n")
        path = b"/".join(self._make_bytes(60).replace(b"\n", b"") for _ in range(4))
        (self._proc / "7" / "cgroup").write_bytes(b"3:memory:/" + path + b"\n0::/" + path + b"\n")
        list_process_cgroups(7, self._proc)
        find_process_owner(7, self._proc)
        read_start_ticks(7, self._proc)
        is_ending(ProcessKey(7, 0), self._proc)

    async def make_cgroup(self) -> None:
        """An odd folder below the pod's."""
        name = self._make_bytes(200).replace(b"/", b"").replace(b"\0", b"")[:250] or b"x"
        path = os.fsencode(self._cgroup) + b"/" + name
        with suppress(FileExistsError):
            os.mkdir(path)  # noqa: PTH102 - a Path is no bytes
        self._cgroups.find_pod_cgroup(self._pod.uid)
        self._cgroups.find_container_cgroup(self._pod.uid, "a" * 64)
        has_processes(self._cgroup)
        assert list(walk_cgroup(self._cgroup))
        if name not in {b"..", b"."}:
            os.rmdir(path)  # noqa: PTH106 - the same

    async def ask_as_hook(self) -> None:
        """What its annotations, its cgroup and its environment make of the line; or no line of the hook's at all."""
        fields = ("id", "namespace", "pod", "uid", "container", "hierarchy", "cgroup")
        question: dict[str, Any] = {field: self._make_bytes(40).decode(errors="replace") for field in fields}
        question |= {"v": self._dice.choice([1, 1, 1, 2, *SIZES]), "pid": self._dice.choice(SIZES)}
        if self._dice.random() < 0.5:
            question |= {"uid": "", "hierarchy": "unified", "cgroup": f"/kubepods/pod{UID}/{question['id']}"}
        line = json.dumps(question).encode()
        if self._dice.random() < 0.3:
            at = self._dice.randrange(len(line))
            line = line[:at] + self._make_bytes(30) + line[at:]
        reader, writer = await asyncio.open_unix_connection(self._world.hook_socket)
        with suppress(ConnectionError):
            writer.write(line.replace(b"\n", b" ") + b"\n")
            answer = await reader.readline()
            assert b'"ok":true' not in answer, line
            assert b"the agent failed" not in answer, line
        writer.close()

    async def ask_as_library(self) -> None:
        """Sends one packet and disconnects."""
        with PreloadClient(self._world.preload.folder / "agent.sock") as client, suppress(ConnectionError):
            client.send(self._dice.randbytes(self._dice.randrange(1, 400)))
        await asyncio.sleep(0)

    async def measure_sizes(self) -> None:
        """Odd sizes of what its processes hold, and of what processes that do not exist hold."""
        await self._monitor.list_over_limit()

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        """As a driver would tell it."""
        sizes = (*SIZES, None)
        processes = tuple(GpuProcess(self._dice.choice([7, 8, -1, 2**31]), self._dice.choice(sizes)) for _ in range(5))
        return (GpuUsage("GPU-0", self._dice.choice(SIZES), self._dice.choice(SIZES), processes),)

    async def report_status(self) -> None:
        """What a runtime that is asked for strange things may report of a container."""
        state = {"running": {"startedAt": self._make_bytes(30).decode(errors="replace")}}
        names = [self._make_bytes(30).decode(errors="replace") for _ in range(3)]
        status = [{"name": name, "containerID": name, "state": state} for name in names]
        annotations = dict.fromkeys(names, names[0]) | {"vrampack.dev/allocation": names[1]}
        metadata = {"name": "odd", "namespace": "default", "uid": "uid-odd", "annotations": annotations}
        pod = {"metadata": metadata, "status": {"phase": names[2], "containerStatuses": status}}
        obj = msgspec.json.decode(json.dumps(pod), type=LocalPodObject)
        self._world.agent.components.pod_cache.on_changed(obj)
        self._world.agent.components.pod_cache.on_deleted(obj)

    def _make_bytes(self, size: int) -> bytes:
        made = b"".join(self._dice.choices(PIECES, k=self._dice.randrange(1, 5))) + self._dice.randbytes(
            self._dice.randrange(4)
        )
        return made[:size] if self._dice.random() < 0.9 else self._dice.randbytes(size)


async def test_odd_tenant_input_never_ends_the_agent(record_property: Callable[[str, object], None]) -> None:
    """Afterwards the same agent admits a pod, answers its library and renders its pages."""
    made: Counter[str] = Counter()
    crashes: list[str] = []
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library()
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        pod = put_bound_pod(world, "p", uid=UID)
        await run_pod(world, pod)
        world.owners[os.getpid()] = CgroupOwner(UID, "a" * 64)
        tenant = OddTenant(world, pod, world.folder)
        kinds = list(tenant.kinds.items())
        world.log.setLevel(logging.ERROR)
        said = world.log_text
        for place in range(ODDITIES):
            kind, make_oddity = kinds[place % len(kinds)]
            try:
                await make_oddity()
            except Exception as error:  # noqa: BLE001 - what is looked for: code of the agent raised it
                crashes.append(f"{kind}: {error!r}")
            made[kind] += 1
            if place % 500 == 0:
                _read_pages(world)
        _read_pages(world)
        assert crashes == []
        assert world.is_running
        assert faults == []
        assert world.log_text == said
        await run_pod(world, put_bound_pod(world, "after"))
        with PreloadClient(world.preload.folder / "agent.sock") as client:
            answer = await client.send_question(MessageKind.HELLO)
        assert answer.verdict is LibraryVerdict.YES
    assert sum(made.values()) == ODDITIES
    record_property("oddities", dict(made))


def _read_pages(world: AgentHarness) -> None:
    world.metrics.render_page()
    msgspec.json.encode(world.agent._build_limits_status())
