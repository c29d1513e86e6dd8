"""The socket that the hook asks: who may ask, which container it is about, and that only a clear yes counts."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.limits.simulated_driver import SimulatedLimitDriver, build_measure
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HookServer
from vrampack.agent.limits.native.backend import NativeByHook
from vrampack.agent.limits.pod_limits import PodLimits

UID = "1d3a9a10-77ab-4c0d-9e1f-0242ac110002"
ID = "4f1e" * 16
CGROUP = f"/kubepods/burstable/pod{UID}/{ID}"
QUESTION = {
    "v": 1,
    "pid": 7,
    "id": ID,
    "namespace": "ml",
    "pod": "app-0",
    "uid": UID,
    "container": "main",
    "hierarchy": "unified",
    "cgroup": CGROUP,
}
LIMITS: dict[str, Mapping[str, int] | None] = {"main": {"GPU-a": 4301}, "side": {}}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    mount = tmp_path / "cgroup"
    (mount / CGROUP[1:]).mkdir(parents=True)
    (mount / f"kubepods/burstable/pod{UID}/other").mkdir()
    (mount / "user.slice").mkdir()
    (mount / "cgroup.controllers").write_text("memory\n")
    return mount


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "hook.sock"
    assert not (tmp_path / "hook.sock").exists()


@asynccontextmanager
async def serving(
    path: Path, tree: Path, driver: SimulatedLimitDriver, *, timeout_seconds: float = 10
) -> AsyncIterator[HookServer]:
    pods = PodLimits(
        CgroupTree(tree),
        NativeByHook(driver, build_measure(driver)),
        lambda uid, container: LIMITS.get(container) if uid == UID else None,
    )
    server = HookServer(path, pods.apply_limit, timeout_seconds=timeout_seconds)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(path: Path, line: bytes, *, end: bool = True) -> object:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    if end:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    assert answer.endswith(b"\n")
    assert answer.count(b"\n") == 1
    return json.loads(answer)


def a_line(**changed: object) -> bytes:
    return json.dumps({**QUESTION, **changed}).encode() + b"\n"


async def test_the_limit_of_the_record_is_put_in_force(path: Path, tree: Path) -> None:
    driver = SimulatedLimitDriver()
    async with serving(path, tree, driver) as server:
        assert await ask(path, a_line()) == {"ok": True}
        assert (server.allowed_count, server.refused_count) == (1, 0)
    assert driver.limits == {(str(tree / CGROUP[1:]), "GPU-a"): 4301}


async def test_environment_sent_for_a_pod_is_ignored(path: Path, tree: Path) -> None:
    """A hook that finds no annotations sends the environment; the cgroup is a pod's, so the record counts."""
    env = ["ALIYUN_COM_GPU_MEM_CONTAINER=15", "ALIYUN_COM_GPU_MEM_DEV=15", "CGPU_DISABLE=true"]
    driver = SimulatedLimitDriver()
    async with serving(path, tree, driver):
        assert await ask(path, a_line(v=2, env=env)) == {"ok": True}
    assert driver.limits == {(str(tree / CGROUP[1:]), "GPU-a"): 4301}


async def test_a_container_that_may_use_no_card_starts_without_a_limit(path: Path, tree: Path) -> None:
    """Its image may carry one of our variables; admission has taken the cards from it."""
    driver = SimulatedLimitDriver()
    async with serving(path, tree, driver):
        assert await ask(path, a_line(container="side")) == {"ok": True}
    assert driver.limits == {}


async def test_a_pod_is_identified_by_its_cgroup_when_the_runtime_sends_no_uid(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver()):
        assert await ask(path, a_line(uid="")) == {"ok": True}


REFUSED = {
    "another pod's annotations": (
        a_line(uid="u-2"),
        f"the annotations name pod u-2, but the cgroup belongs to pod {UID}",
    ),
    "another container's id": (a_line(id="ab" * 32), "the cgroup"),
    "no container name": (a_line(container=""), "do not name the container"),
    "a container without a record": (a_line(container="extra"), "ml/app-0/extra: no record"),
    "no Kubernetes": (a_line(cgroup="/user.slice"), "does not belong to a pod"),
    "a cgroup that is not there": (a_line(cgroup=f"/kubepods/pod{UID}"), "is not there"),
    "out of the tree": (a_line(cgroup=f"{CGROUP}/../../../../.."), "is not a container's cgroup"),
    "a hierarchy that is not there": (a_line(hierarchy="memory"), "cgroup v2 only"),
    "another version": (a_line(v=3), "the hook speaks 3, the agent 1 and 2"),
    "a field of another type": (a_line(pid="7"), "not a question"),
    "a field missing": (b'{"v":1}\n', "not a question"),
    "no JSON": (b"hello\n", "not a question"),
    "no UTF-8": (a_line(pod="name").replace(b"name", b"na\xff\xfe"), "not a question"),
    "nothing": (b"", "not one line"),
    "half a line": (a_line()[:-1], "not one line"),
    "a line that does not end": (b"[" * 20_000, "not one line of at most 16384 bytes"),
}


@pytest.mark.parametrize(("line", "why"), REFUSED.values(), ids=REFUSED)
async def test_an_inconsistent_request_is_refused(path: Path, tree: Path, line: bytes, why: str) -> None:
    driver = SimulatedLimitDriver()
    async with serving(path, tree, driver) as server:
        answer = await ask(path, line)
        assert (server.allowed_count, server.refused_count) == (0, 1)
    assert isinstance(answer, dict)
    assert answer["ok"] is False
    assert why in answer["error"]
    assert driver.limits == {}


async def test_a_limit_that_the_driver_refuses_is_refused_with_its_reason(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver(fails=LimitError("below present use"))):
        assert await ask(path, a_line()) == {"ok": False, "error": "below present use"}


async def test_internal_error_refuses_the_request_and_the_server_keeps_running(path: Path, tree: Path) -> None:
    driver = SimulatedLimitDriver(fails=RuntimeError("a bug"))
    async with serving(path, tree, driver):
        assert await ask(path, a_line()) == {"ok": False, "error": "the agent failed; see its log"}
        driver.fails = None
        assert await ask(path, a_line()) == {"ok": True}


async def test_request_is_refused_in_time_when_the_driver_hangs(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver(hangs=True), timeout_seconds=0.5):
        answer = await ask(path, a_line())
    assert answer == {"ok": False, "error": "the limit was not in force within 0.5 s"}


async def test_silent_hook_does_not_delay_other_hooks(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver(), timeout_seconds=0.5):
        silent = asyncio.create_task(ask(path, b"", end=False))
        assert await ask(path, a_line()) == {"ok": True}
        assert await silent == {"ok": False, "error": "the limit was not in force within 0.5 s"}


async def test_server_answers_others_after_a_hook_disconnects(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver()):
        _, writer = await asyncio.open_unix_connection(path)
        writer.transport.abort()
        assert await ask(path, a_line()) == {"ok": True}


async def test_hundred_concurrent_requests_are_all_allowed(path: Path, tree: Path) -> None:
    async with serving(path, tree, SimulatedLimitDriver()) as server:
        answers = await asyncio.gather(*(ask(path, a_line()) for _ in range(100)))
        assert server.allowed_count == 100
    assert answers == [{"ok": True}] * 100


def open_to_everyone(path: Path) -> int:
    """Allow every user; return the mode that the socket had before."""
    rights = path.stat().st_mode & 0o777
    for opened in (path, *path.parents[:3]):
        opened.chmod(0o777)
    return rights


AS_NOBODY = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(b"x\\n")
sys.stdout.write(line.makefile().readline())
"""


@pytest.mark.shim
async def test_only_the_agent_s_own_user_may_ask(path: Path, tree: Path) -> None:
    """That user is root. Others cannot open the socket; if its mode was widened, the server checks the caller's user."""
    async with serving(path, tree, SimulatedLimitDriver()):
        assert open_to_everyone(path) == 0o600
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-I", "-c", AS_NOBODY, path),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    assert json.loads(said) == {"ok": False, "error": "uid 65534 may not ask"}


async def test_agent_that_started_last_answers_on_the_socket(path: Path, tree: Path) -> None:
    """It replaces the socket of a killed agent, and that of one that is still stopping."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with (
        serving(path, tree, SimulatedLimitDriver()) as first,
        serving(path, tree, SimulatedLimitDriver()) as last,
    ):
        await first.stop()
        assert await ask(path, a_line()) == {"ok": True}
        assert (first.allowed_count, last.allowed_count) == (0, 1)
