"""End to end in one machine: the agent of a host, its hook, the module, a driver, and containers in cgroups of their own.

The test plays the runtime: it puts a first process into a cgroup, calls the hook with a bundle, and lets the process
continue where the hook allows it. Agent, hook, module and commands are those that ship, the driver and NVML are simulated.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.driver.modules import VERSION
from tests.fakes.nvml.build import LIBRARY
from tests.fakes.nvml.build import build_stub as build_nvml
from tests.fakes.nvml.machine import FakeNvmlMachine as Nvml
from tests.fakes.nvml.profiles import PROFILES
from tests.machine.kernels import Kernel
from tests.machine.machine import VirtualMachine
from tests.machine.program import GuestProgram, GuestStart
from tests.machine.python import ENVIRONMENT, LIBRARIES, PYTHON, python_files
from tests.shim.kmod.conftest import BUILT, ModulesOfTests
from tests.shim.kmod.world import KmodWorld
from tests.support.limit_cases import REFUSED
from tests.support.polling import wait_until
from tests.support.program_result import ProgramResult

ENTRIES = (
    "vrampack.cli.__main__",
    "vrampack.cli.agent",
    "vrampack.cli.limits.main",
    "concurrent.futures.thread",
    "aiohttp.web",
)
ENVIRONMENT_OF_OURS = {**ENVIRONMENT, "HOME": "/", "VRAMPACK_NVML_STATE": "/etc/nvml"}
CONSOLE = """
import contextlib, io, json, sys
from vrampack.cli.main import main
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
"""`vrampack`, one command after the other: without KVM each start of Python is seconds."""
HEALTH = "127.0.0.1:12347"
SETTINGS = f"""\
apiVersion: vrampack.dev/v1
kind: AgentConfiguration
mode: standalone
enforcement: kmod
listen: {{health: "{HEALTH}"}}
"""
IDS = {name: name * 64 for name in ("a", "b", "c")}
REQUESTS = {"a": (4, 1), "b": (4, 1), "c": (6, 4)}
"""Units of 15, and weight: 4301 MiB of the V100's 16130 for a and b, 6452 for c."""
MIB = 1 << 20
QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
START_SECONDS = 240
"""Of Python without KVM; ten to thirty were measured."""
LOOK_SECONDS = 60
"""The agent looks every five."""


def a_bundle(name: str) -> bytes:
    units, weight = REQUESTS[name]
    env = [
        f"ALIYUN_COM_GPU_MEM_CONTAINER={units}",
        "ALIYUN_COM_GPU_MEM_DEV=15",
        f"ALIYUN_COM_GPU_SCHD_WEIGHT={weight}",
    ]
    process = {"args": ["/first"], "cwd": "/", "env": env, "user": {"uid": 0, "gid": 0}}
    return json.dumps({"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs"}}).encode()


@dataclass(frozen=True, slots=True)
class KmodHost:
    """A GPU host, in a machine."""

    machine: VirtualMachine
    console: GuestProgram

    @property
    def world(self) -> KmodWorld:
        return KmodWorld(self.machine)

    def agent(self) -> GuestProgram:
        """A started agent that is ready."""
        words = ("-m", "vrampack.cli", "agent", "--standalone", "--config", "/etc/agent.yaml", "--node-name", "host")
        started = self.machine.start(PYTHON, *words, start=GuestStart(env=ENVIRONMENT_OF_OURS))

        def is_ready() -> bool:
            assert started.output.code is None, started.output.err.decode()
            assert b"Traceback" not in started.output.err, started.output.err.decode()
            self.machine.read("/proc/uptime")  # receives what the agent has printed
            return b"back end selected mode=kmod" in started.output.err

        wait_until(is_ready, timeout_seconds=START_SECONDS, what=started.output.err.decode)
        return started

    def command(self, *words: str) -> ProgramResult:
        """`vrampack`, on this host."""
        self.console.send_input(json.dumps(words) + "\n")
        return ProgramResult(*json.loads(self.console.read_line(START_SECONDS)))

    def status(self) -> dict[str, Any]:
        ended = self.command("limits", "status", "-o", "json")
        found: dict[str, Any] = json.loads(ended.out or '{"module": null}')
        return found

    def container(self, name: str, *steps: str) -> GuestProgram:
        """Its first process waits for the runtime."""
        first = self.machine.start("steps", "wait", *steps, start=GuestStart(cgroup=f"docker/{IDS[name]}"))
        first.wait_for_line("waiting")
        return first

    def hook(self, name: str, first: GuestProgram) -> ProgramResult:
        state = {"id": IDS[name], "status": "creating", "pid": first.pid, "bundle": f"/bundles/{name}"}
        return self.machine.run("vrampack-hook", stdin=json.dumps(state))

    def starts(self, name: str, *steps: str) -> GuestProgram:
        """A container that the hook let start."""
        first = self.container(name, *steps)
        assert self.hook(name, first) == ProgramResult(0, "", "")
        first.resume()
        return first

    def used(self, name: str) -> int:
        """MiB by the status that people read; -1 where it has no row."""
        rows = [each for each in self.status().get("containers", ()) if each["container"] == IDS[name]]
        return int(rows[0]["usedBytes"]) // MIB if rows else -1

    def run_in(self, name: str, *words: str) -> ProgramResult:
        """As `docker exec` does."""
        return self.machine.run(*words, start=GuestStart(cgroup=f"docker/{IDS[name]}"))


@pytest.fixture
def host(kernel: Kernel, modules: ModulesOfTests, programs: list[Path], tmp_path: Path) -> Iterator[KmodHost]:
    hooks = Path(__file__).parents[3] / "shim" / "hook"
    subprocess.run(["make", "--silent", "-C", str(hooks), "hook", f"OUT={tmp_path}"], check=True, timeout=100)
    Nvml(tmp_path / "nvml", gpus=PROFILES["v100"], driver=VERSION)
    files = {
        **modules.files(),
        **python_files(ENTRIES),
        f"{LIBRARIES}/{LIBRARY}": build_nvml(BUILT) / LIBRARY,
        "/bin/vrampack-hook": tmp_path / "vrampack-hook",
        "/etc/nvml": tmp_path / "nvml",
        "/etc/agent.yaml": SETTINGS.encode(),
        **{f"/bundles/{name}/config.json": a_bundle(name) for name in IDS},
    }
    with VirtualMachine(kernel, programs=programs, files=files, memory_mib=1024) as machine:
        machine.write("/sys/class/net/lo/flags", "0x9")  # up, and loopback
        host = KmodHost(machine, machine.start(PYTHON, "-c", CONSOLE, start=GuestStart(env=ENVIRONMENT_OF_OURS)))
        host.world.load()
        yield host
        machine.assert_quiet()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kernel", ["6.1"], indirect=True)
def test_agent_hook_and_module_enforce_the_limits_of_a_host(host: KmodHost) -> None:
    """One life of a host, in order: two tenants, another agent, and another load of driver and module."""
    agent = host.agent()
    first = host.starts("a", "open", "take", "3192", "wait", "take", "1024", "take", "1108", "wait", "wait")
    greedy = host.starts("b", "open", "take", "6144", "take", "4300", "wait")
    first.wait_for_line("allocated 3192 MiB")
    greedy.wait_for_line(REFUSED)
    greedy.wait_for_line("allocated 4300 MiB")
    assert host.run_in("a", "nvidia-smi", *QUERY).out == "4301, 3192, 1109\n"
    wait_until(lambda: (host.used("a"), host.used("b")) == (3192, 4300), timeout_seconds=LOOK_SECONDS, what="their use")
    rows = {each["container"]: each for each in host.status()["containers"]}
    assert [rows[IDS[name]]["limitBytes"] // MIB for name in ("a", "b")] == [4301, 4301]
    assert [rows[IDS[name]]["refused"] for name in ("a", "b")] == [0, 1]
    assert rows[IDS["a"]]["processes"] == [{"pid": first.pid, "heldBytes": 3192 * MIB, "refused": 0}]

    agent.kill()
    agent.wait_for_end()
    first.resume()
    first.wait_for_line("allocated 1024 MiB")  # 3192 + 1024 = 4216 of 4301
    first.wait_for_line(REFUSED)
    waiting = host.container("c", "open", "take", "6450", "wait")
    refused = host.hook("c", waiting)
    assert (refused.code, "no agent at /run/vrampack/hook.sock" in refused.err) == (1, True)
    host.agent()
    assert host.hook("c", waiting).code == 0
    instances = host.world.instances()
    assert sorted(int(each.cards[0].limit) // MIB for each in instances.values()) == [4301, 4301, 6452]
    assert sorted(each.fields["weight"] for each in instances.values()) == ["1", "1", "4"]

    ended = host.command("limits", "detach")
    assert ended.code == 1
    assert "2 files of limited processes are open: " in ended.err
    assert f"(pid {first.pid})" in ended.err
    first.resume()
    first.wait_for_line("waiting")
    for each in (first, greedy):
        each.kill()
        each.wait_for_end()
    assert host.command("limits", "detach") == ProgramResult(0, "detached\n", "")
    late = host.container("a", "wait")
    refused = host.hook("a", late)
    assert (refused.code, "is detached from the driver: run `vrampack limits attach`" in refused.err) == (1, True)
    for name in ("vrampack", "nvidia_uvm", "nvidia"):
        host.machine.rmmod(name)
    host.world.load()
    wait_until(lambda: bool(host.world.instances()), timeout_seconds=LOOK_SECONDS, what="c, registered again")
    waiting.resume()
    waiting.wait_for_line("allocated 6450 MiB")
    assert host.run_in("c", "app", "3").lines == [REFUSED]
    wait_until(lambda: host.used("c") == 6450, timeout_seconds=LOOK_SECONDS, what="the use of c")
