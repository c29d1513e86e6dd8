"""Hosts without Kubernetes: the standalone agent, the hook and its mounts under a real runc. The driver is simulated.

The containers are as Docker and containerd make them: cgroups of those shapes, no annotation, a read-only root. Their first
process asks the agent for memory as the library would, so the tests see the limit as that process does.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shim.bundles import modes
from tests.shim.conftest import SOURCES
from tests.shim.containerd import a_containerd, root_of
from tests.shim.hostbundles import FROZEN, LAYERED, HostBundleContainer, container_removed
from tests.support.cgroup_folders import MOUNT
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu
from vrampack.agent.host.agent import StandaloneAgent
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.node_context import NodePaths
from vrampack.agent.limits.preload.backend import PreloadPaths
from vrampack.agent.limits.preload.row import PreloadRow
from vrampack.agent.limits.preload.wire import (
    ONLY_CARD,
    CardHolding,
    LibraryQuestion,
    LibraryVerdict,
    MessageKind,
    read_answer,
    write_question,
)
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import Gpu, GpuInventory
from vrampack.agent.settings import AgentConfiguration, AgentListen

MIB = 1 << 20
TENANT = Path(__file__).parent / "tenant.c"
SETTINGS = AgentConfiguration(
    apiVersion="vrampack.dev/v1", kind="AgentConfiguration", listen=AgentListen(health="", status_socket="")
)
CGROUPS = {
    "Docker, cgroupfs": "/docker/ID",
    "Docker, systemd": "/system.slice/docker-ID.scope",
    "nerdctl, systemd": "/system.slice/nerdctl-ID.scope",
    "nerdctl and ctr": "/default/ID",
    "any other": "/here/and there/x",
}


class OlderDriver(ScriptedDriver):
    """580: no limits of its own, whatever the cgroups are."""

    async def list_gpus(self) -> GpuInventory:
        return GpuInventory(self.present, "580.95.05")


@dataclass
class ShimHost:
    """One T4 unless told otherwise."""

    folder: Path
    built: Path
    mode: str
    program: Path
    hook_socket: Path
    cards: tuple[Gpu, ...] = (scripted_gpu(memory_mib=15109, model="Tesla T4"),)

    @property
    def preload_paths(self) -> PreloadPaths:
        """`libvrampack.so` is no library here: nothing loads it."""
        shipped = self.folder / "libvrampack.so"
        if not shipped.exists():
            shipped.write_bytes(b"a library")
        return PreloadPaths(self.folder / "preload", shipped, self.folder / "preload.books")

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[StandaloneAgent]:
        agent = StandaloneAgent(
            SETTINGS,
            AgentMetrics("0", node="host"),
            OlderDriver(*self.cards),
            host="host",
            node_paths=NodePaths(self.hook_socket, self.folder / "containers", MOUNT),
            back_ends=[PreloadRow(self.preload_paths)],
        )
        running = asyncio.create_task(agent.run())
        try:
            await until(lambda: not agent.find_unready_reason() or running.done())
            yield agent
        finally:
            agent.stop()
            await running

    def container(self, *env: str, cgroup: str = "/docker/ID", patience: int = 10) -> HostBundleContainer:
        """`patience`: seconds that its hook waits for the agent."""
        folder = self.folder / f"bundle{len(list(self.folder.glob('bundle*')))}"
        folder.mkdir()
        hook = [str(self.built / "vrampack-hook-sanitized"), f"--socket={self.hook_socket}", f"--timeout={patience}"]
        return HostBundleContainer(folder, self.program, list(env), hook, cgroup)

    async def hold(self, container: HostBundleContainer, mib: int) -> tuple[LibraryVerdict, int]:
        """Whether its first process may hold so much of its card, and what its limit is, in MiB."""
        verdict, limit = LibraryVerdict.NO, 0
        for kind, holdings in ((MessageKind.HELLO, ()), (MessageKind.HOLD, (CardHolding(ONLY_CARD, mib * MIB),))):
            packet = write_question(LibraryQuestion(kind, 1, holdings)).hex()
            said = await container.ask(f"say {self.folder}/preload/agent.sock {packet}")
            answer = read_answer(bytes.fromhex(said))
            verdict, limit = answer.verdict, answer.limit_bytes // MIB
        return LibraryVerdict(verdict), limit


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def units(container: str, dev: str = "15") -> list[str]:
    return [f"ALIYUN_COM_GPU_MEM_CONTAINER={container}", f"ALIYUN_COM_GPU_MEM_DEV={dev}"]


@pytest.fixture(params=modes())
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tenant") / "first"
    subprocess.run(["gcc", "-static", "-O1", "-Wall", "-Werror", "-o", made, TENANT], check=True, timeout=60)
    return made


@pytest.fixture
def host(tmp_path: Path, built: Path, program: Path, mode: str) -> ShimHost:
    return ShimHost(tmp_path, built, mode, program, tmp_path / "hook.sock")


async def test_two_containers_share_a_card_each_with_its_limit(host: ShimHost) -> None:
    """15109 * 6 / 15 = 6043.6 and 15109 * 8 / 15 = 8058.1."""
    six, eight = host.container(*units("6")), host.container(*units("8"))
    async with host.agent() as agent, container_removed(six, eight):
        await six.start(host.mode)
        await eight.start(host.mode)
        assert await host.hold(six, 6043) == (LibraryVerdict.YES, 6043)
        assert await host.hold(eight, 8058) == (LibraryVerdict.YES, 8058)
        shown = {
            (each.container, each.limit_bytes, each.used_bytes) for each in agent._build_limits_status().containers
        }
        assert shown == {(six.id, 6043 * MIB, 6043 * MIB), (eight.id, 8058 * MIB, 8058 * MIB)}
        assert await host.hold(six, 6044) == (LibraryVerdict.NO, 6043)
        assert await host.hold(eight, 8059) == (LibraryVerdict.NO, 8058)
        assert (agent._hook_server.allowed_count, agent._hook_server.refused_count) == (2, 0)


@pytest.mark.parametrize("cgroup", CGROUPS.values(), ids=CGROUPS)
async def test_a_container_is_identified_by_a_cgroup_of_any_shape(host: ShimHost, cgroup: str) -> None:
    container = host.container(*units("6"), cgroup=cgroup)
    async with host.agent(), container_removed(container):
        await container.start(host.mode)
        assert await host.hold(container, 1) == (LibraryVerdict.YES, 6043)


async def test_the_library_is_mounted_and_cannot_be_written(host: ShimHost) -> None:
    container = host.container(*units("6"))
    async with host.agent(), container_removed(container):
        await container.start(host.mode)
        folder = host.folder / "preload"
        assert await container.ask(f"there {folder}/libvrampack.so") == "read-only"
        assert await container.ask(f"there {folder}") == "read-only"
        assert await container.ask("there /etc/ld.so.preload") == "read-only"
    assert (container.root / "etc/ld.so.preload").read_bytes() == b"", "the mount went with the container"


LIBRARY = (
    '#include <unistd.h>\n__attribute__((constructor)) static void load(void) { (void)!write(1, "loaded\\n", 7); }'
)


def a_loading_root(root: Path, library: Path) -> None:
    """The first process as a dynamic program, with the C library of this machine, and a library that says it is loaded."""
    make = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(make, input=LIBRARY.encode(), check=True, timeout=60)
    subprocess.run(["gcc", "-o", root / "first", TENANT], check=True, timeout=60)
    needed = subprocess.run(["ldd", root / "first"], check=True, capture_output=True, timeout=60).stdout.split()
    for path in (each for each in needed if each.startswith(b"/")):
        subprocess.run(["cp", "--parents", path, root], check=True, timeout=60)


async def test_programs_of_the_container_load_the_library(host: ShimHost) -> None:
    """In this test the loader's list has the library's path on this machine."""
    container = host.container(*units("6"))
    a_loading_root(container.root, host.folder / "libvrampack.so")
    async with host.agent(), container_removed(container):
        (host.folder / "preload" / "ld.so.preload").write_text(f"{host.folder}/preload/libvrampack.so\n")
        await container.start(host.mode)
        assert await container.ask("there /proc") == "loaded"


def maps_of(cgroup: Path) -> str:
    """What the one process in it has mapped."""
    (pid,) = (cgroup / "cgroup.procs").read_text().split()
    return Path("/proc", pid, "maps").read_text()


async def test_the_shipped_library_is_mapped_into_the_containers_processes(host: ShimHost) -> None:
    container = host.container(*units("6"))
    a_loading_root(container.root, host.folder / "unused.so")
    make = ["make", "--silent", "-C", str(SOURCES.parent / "preload"), "preload", f"OUT={host.folder}"]
    assert await (await asyncio.create_subprocess_exec(*make)).wait() == 0
    async with host.agent() as agent, container_removed(container):
        (host.folder / "preload" / "ld.so.preload").write_text(f"{host.folder}/preload/libvrampack.so\n")
        await container.start(host.mode)
        assert await container.ask("there /proc") != "", "it runs"
        (each,) = agent._host_containers.list_containers()
        assert f"{host.folder}/preload/libvrampack.so" in maps_of(
            CgroupTree(MOUNT).get_folder(each.hierarchy, each.cgroup)
        )


async def test_a_container_may_switch_its_limit_off(host: ShimHost) -> None:
    container = host.container(*units("6"), "CGPU_DISABLE=true")
    async with host.agent() as agent, container_removed(container):
        await container.start(host.mode)
        assert await container.ask("there /etc/ld.so.preload") == "No such file or directory"
        assert agent._host_containers.list_containers() == ()


REFUSED = {
    "a card that is not there": (
        [*units("6"), "ALIYUN_COM_GPU_VISIBLE_DEVICES=1"],
        "has no card '1'; it has 0 (GPU-0)",
    ),
    "more than a card": (units("16"), "refused: ALIYUN_COM_GPU_MEM_CONTAINER=16 is more than the 15 units of a whole"),
    "text": (units("six"), "refused: ALIYUN_COM_GPU_MEM_CONTAINER='six': 'six' is not a quantity"),
    "half a limit": (units("6")[:1], "refused: ALIYUN_COM_GPU_MEM_DEV is not set"),
    "two limits": ([*units("6"), *units("8")], "ALIYUN_COM_GPU_MEM_CONTAINER is set twice in the environment"),
    "a value without end": (units("6" * 3000), "ALIYUN_COM_GPU_MEM_CONTAINER is longer than 2048 bytes"),
}


@pytest.mark.parametrize(("env", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_container_with_an_invalid_variable_does_not_start(host: ShimHost, env: list[str], why: str) -> None:
    container = host.container(*env)
    async with host.agent() as agent, container_removed(container):
        await container.start(host.mode)
        assert why in await container.end()
        assert agent._host_containers.list_containers() == ()


async def test_the_standalone_agent_refuses_a_container_of_a_pod(host: ShimHost) -> None:
    pod = "/kubepods/besteffort/pod1d3a9a10-0000-4000-8000-000000000001/ID"
    containers = host.container(*units("6"), cgroup=pod), host.container(*units("6"))
    containers[1].annotations = {"io.kubernetes.cri.sandbox-name": "app-0"}
    async with host.agent(), container_removed(*containers):
        for container in containers:
            await container.start(host.mode)
            assert "refused: it belongs to a pod" in await container.end()


async def test_memory_is_not_allocated_twice_and_is_freed_when_a_container_ends(host: ShimHost) -> None:
    first, second, third = host.container(*units("8")), host.container(*units("7")), host.container(*units("7"))
    async with host.agent(), container_removed(first, second, third):
        await first.start(host.mode)
        assert await host.hold(first, 1) == (LibraryVerdict.YES, 8058)
        await second.start(host.mode)
        assert await host.hold(second, 1) == (LibraryVerdict.YES, 7050)
        await third.start(host.mode)
        # 15109 - 8058 - 7050 = 1
        why = f"card 0 (GPU-0) has 1 of its 15109 MiB left and 7050 are asked; held by {first.id[:12]} (8058), "
        assert why in await third.end()

        await first.end()
        again = host.container(*units("7"))
        async with container_removed(again):
            await again.start(host.mode)
            assert await host.hold(again, 7050) == (LibraryVerdict.YES, 7050)


async def test_the_limit_of_a_running_container_survives_an_agent_restart(host: ShimHost) -> None:
    """Its use is in the journal, its limit in its file, and its neighbour's share stays the neighbour's."""
    running, other = host.container(*units("8")), host.container(*units("8"))
    async with container_removed(running, other):
        async with host.agent():
            await running.start(host.mode)
            assert await host.hold(running, 4000) == (LibraryVerdict.YES, 8058)
        async with host.agent():
            assert await running.ask(f"say {host.folder}/preload/agent.sock 00") in {"Success", "Broken pipe"}
            assert await host.hold(running, 8059) == (LibraryVerdict.NO, 8058)
            assert await host.hold(running, 8058) == (LibraryVerdict.YES, 8058)
            await other.start(host.mode)
            assert "has 7051 of its 15109 MiB left" in await other.end()


async def test_a_container_whose_limit_file_is_lost_gets_no_more_memory(host: ShimHost) -> None:
    """It has the library, and its limit is not known."""
    container = host.container(*units("6"))
    async with container_removed(container):
        async with host.agent():
            await container.start(host.mode)
            assert await host.hold(container, 100) == (LibraryVerdict.YES, 6043)
        for file in (host.folder / "containers").iterdir():
            file.unlink()
        async with host.agent():
            assert await container.ask(f"say {host.folder}/preload/agent.sock 00") in {"Success", "Broken pipe"}
            assert (await host.hold(container, 101))[0] is LibraryVerdict.NO


async def test_a_container_with_a_limit_does_not_start_without_an_agent(host: ShimHost) -> None:
    container = host.container(*units("6"), patience=1)
    async with container_removed(container):
        await container.start(host.mode)
        assert "no agent at" in await container.end()


def a_volume(host: ShimHost, at: str) -> list[dict[str, object]]:
    source = host.folder / "volume"
    source.mkdir()
    return [{"destination": at, "type": "bind", "source": str(source), "options": ["rbind", "rw"]}]


async def test_links_and_volumes_cannot_redirect_the_mount(host: ShimHost) -> None:
    """An image may point /etc at a folder of the host, and a user may mount one there: nothing is made in either."""
    target = host.folder / "target"
    target.mkdir()
    linked, volume, odd = (host.container(*units("3")) for _ in range(3))
    (linked.root / "etc").symlink_to(target)
    volume.mounts = a_volume(host, "/etc")
    (odd.root / "etc/ld.so.preload").mkdir(parents=True)
    async with host.agent(), container_removed(linked, volume, odd):
        for container, why in (
            (linked, "/etc of the container is a symbolic link"),
            (volume, "/etc of the container is a volume, and the library is needed there: mount the volume elsewhere"),
            (odd, "/etc/ld.so.preload of the container is not a plain file"),
        ):
            await container.start(host.mode)
            assert why in await container.end()
    assert list(target.iterdir()) == []
    assert list((host.folder / "volume").iterdir()) == []


async def test_an_image_s_layers_stay_as_they_are(host: ShimHost) -> None:
    """What is missing is created in the container's own layer."""
    container = host.container(*units("6"))
    (container.root / "etc").mkdir()
    container.storage = LAYERED
    async with host.agent(), container_removed(container):
        await container.start(host.mode)
        assert await container.ask("there /etc/ld.so.preload") == "read-only"
        assert await host.hold(container, 6043) == (LibraryVerdict.YES, 6043)
    assert sorted(each.name for each in container.root.iterdir()) == ["etc", "first", "proc"]
    assert list((container.root / "etc").iterdir()) == []


async def test_the_preload_list_of_an_image_is_hidden_while_the_container_runs(host: ShimHost) -> None:
    container = host.container(*units("6"))
    (container.root / "etc").mkdir()
    (container.root / "etc/ld.so.preload").write_text("/usr/lib/other.so\n")
    async with host.agent(), container_removed(container):
        await container.start(host.mode)
        assert await container.ask("there /etc/ld.so.preload") == "read-only"
    assert (container.root / "etc/ld.so.preload").read_text() == "/usr/lib/other.so\n"


async def test_a_read_only_root_must_already_have_the_mount_points(host: ShimHost, mode: str) -> None:
    """As with `ctr run --read-only` of a snapshot: the storage itself is read-only, not only the container's view."""
    bare, ready = host.container(*units("3")), host.container(*units("3"))
    (ready.root / "etc").mkdir()
    (ready.root / "etc/ld.so.preload").touch()
    (ready.root / str(host.folder)[1:] / "preload").mkdir(parents=True)
    async with host.agent(), container_removed(bare, ready):
        for container in (bare, ready):
            (container.root / "dev").mkdir()
            container.mounts = [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}]
            container.storage = FROZEN
            await container.start(mode)
        assert (
            "is missing in the container and cannot be created: Read-only file system; the image must"
            in await bare.end()
        )
        assert await ready.ask("there /etc/ld.so.preload") == "read-only"


async def test_two_hooks_in_one_container_are_as_good_as_one(host: ShimHost) -> None:
    """A runtime that adds it, and a base spec that has it."""
    container = host.container(*units("6"))
    container.hooks = 2
    async with host.agent() as agent, container_removed(container):
        await container.start(host.mode)
        assert await host.hold(container, 6043) == (LibraryVerdict.YES, 6043)
        assert await container.ask("there /etc/ld.so.preload") == "read-only"
        assert agent._hook_server.allowed_count == 2


@pytest.mark.parametrize("mode", modes()[-1:], indirect=True)  # its specs ask for controllers that a bare v2 tree lacks
async def test_containers_of_containerd_are_limited(host: ShimHost) -> None:
    """`ctr run` on a containerd whose runtime is vrampack-runtime, as Docker's daemon.json names it."""
    run = host.folder / "run"
    run.mkdir()
    host.hook_socket = run / "hook.sock"
    (host.folder / "containerd").mkdir()
    allowed, refused = host.container(*units("6")), host.container(*units("16"))
    for container in (allowed, refused):
        root_of(container)
    folder = host.folder / "containerd"
    async with host.agent(), a_containerd(folder, run, host.mode) as containerd, container_removed(allowed, refused):
        for container in (allowed, refused):
            container.attach(await containerd.run(container, host.built / "vrampack-runtime"))
        assert await host.hold(allowed, 6043) == (LibraryVerdict.YES, 6043)
        assert await host.hold(allowed, 6044) == (LibraryVerdict.NO, 6043)
        assert "is more than the 15 units of a whole card" in await refused.end()
        assert "ctr" not in await allowed.end()
