"""The whole hook against an agent that says yes, no, nothing or nonsense: only a clear yes lets a container start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.shim.oci_configs import CONTAINERD, runtime_config
from tests.support.cgroup_folders import CgroupFolder

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class HookContainer:
    """What a runtime hands the hook: a state, and a bundle with a config.json."""

    program: Path
    socket: Path
    bundle: Path
    pid: int
    id: str = "4f1e"

    def configured(self, text: str) -> HookContainer:
        self.bundle.mkdir(exist_ok=True)
        (self.bundle / "config.json").write_text(text)
        return self

    @property
    def state(self) -> bytes:
        return json.dumps({"id": self.id, "status": "creating", "pid": self.pid, "bundle": str(self.bundle)}).encode()

    async def start(self, *arguments: str, state: bytes | None = None) -> tuple[int, str]:
        """The hook's exit status and its complaint."""
        process = await asyncio.create_subprocess_exec(
            self.program,
            f"--socket={self.socket}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, complaint = await process.communicate(self.state if state is None else state)
        assert process.returncode is not None
        return process.returncode, complaint.decode()


@pytest.fixture
def container(built: Path, tmp_path: Path, cgroup: CgroupFolder) -> HookContainer:
    limited = runtime_config("NVIDIA_GPU_MEMORY_LIMIT=4301", annotations=CONTAINERD)
    program = built / "vrampack-hook-sanitized"
    return HookContainer(program, tmp_path / "hook.sock", tmp_path / "bundle", cgroup.start()).configured(limited)


@asynccontextmanager
async def an_agent(path: Path, talk: Talk) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield


def saying(answer: bytes, heard: list[bytes] | None = None) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if heard is not None:
            heard.append(line)
        writer.write(answer)
        await writer.drain()

    return talk


async def test_the_agent_receives_the_containers_identity(container: HookContainer, cgroup: CgroupFolder) -> None:
    heard: list[bytes] = []
    async with an_agent(container.socket, saying(b'{"ok":true}\n', heard)):
        assert await container.start() == (0, "")
    assert [json.loads(line) for line in heard] == [
        {
            "v": 1,
            "pid": container.pid,
            "id": "4f1e",
            "namespace": "ml",
            "pod": "app-0",
            "uid": "u-1",
            "container": "main",
            "hierarchy": cgroup.hierarchy,
            "cgroup": cgroup.path,
        }
    ]


async def test_a_container_without_a_limit_starts_without_asking_the_agent(container: HookContainer) -> None:
    """No agent listens, and the process is gone: neither is asked."""
    free = replace(container, pid=2**22).configured(runtime_config("A=1", "NVIDIA_GPU_MEMORY_LIMIT="))
    assert await free.start() == (0, "")


ANSWERS = {
    "no": (b'{"ok":false,"error":"not on this card"}\n', "refused: not on this card"),
    "no, without a reason": (b'{"ok":false}\n', "refused: no reason given"),
    "no, with a reason for the terminal": (b'{"ok":false,"error":"a\\n\\u001b[2J"}\n', "refused: a  [2J"),
    "yes as a string": (b'{"ok":"true"}\n', "refused"),
    "yes twice": (b'{"ok":true,"ok":true}\n', "not readable"),
    "yes without an end": (b'{"ok":true}', "no answer"),
    "yes and no": (b'{"ok":true}{"ok":false}\n', "not readable"),
    "nothing": (b"", "no answer"),
    "an empty line": (b"\n", "not readable"),
    "no JSON": (b"ok\n", "not readable"),
    "a list": (b"[true]\n", "not readable"),
    "more than fits": (b'{"ok":true' + b" " * 4096 + b"}\n", "no answer"),
}


@pytest.mark.parametrize(("answer", "complaint"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("absent", ["refuse", "pass"])
async def test_any_answer_but_a_clear_yes_refuses_the_start(
    container: HookContainer, answer: bytes, complaint: str, absent: str
) -> None:
    async with an_agent(container.socket, saying(answer)):
        status, said = await container.start(f"--if-absent={absent}")
    assert status == 1
    assert complaint in said
    assert said.startswith("vrampack-hook: ")
    assert said.count("\n") == 1


async def test_the_hook_waits_for_a_silent_agent_until_the_timeout(container: HookContainer) -> None:
    silence = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        silence.set()

    async with an_agent(container.socket, listen):
        status, said = await container.start("--timeout=1", "--if-absent=pass")
        await silence.wait()
    assert (status, said) == (1, "vrampack-hook: no answer from the agent: Connection timed out\n")


async def test_a_missing_agent_refuses_the_start(container: HookContainer) -> None:
    status, said = await container.start("--timeout=1")
    assert (status, said) == (1, f"vrampack-hook: no agent at {container.socket}: No such file or directory\n")


async def test_a_socket_of_a_dead_agent_refuses_the_start(container: HookContainer) -> None:
    async with an_agent(container.socket, saying(b"")):
        pass
    status, said = await container.start("--timeout=1")
    assert status == 1
    assert "Connection refused" in said


async def test_a_container_starts_without_an_agent_where_it_is_optional(container: HookContainer) -> None:
    status, said = await container.start("--if-absent=pass")
    assert status == 0
    assert "no agent at" in said


async def test_the_hook_waits_for_an_agent_that_is_being_replaced(container: HookContainer) -> None:
    started = asyncio.create_task(container.start("--timeout=30"))
    async with an_agent(container.socket, saying(b'{"ok":true}\n')):
        assert await started == (0, "")


REFUSED_BUNDLES = {
    "not JSON": ("{", "config.json is not JSON"),
    "larger than 16 MiB": (" " * (16 << 20) + "{}", "File too large"),
    "a pod that names another container of it": (
        runtime_config("NVIDIA_GPU_MEMORY_LIMIT=1", annotations={**CONTAINERD, "io.kubernetes.container.name": "big"}),
        "differ: remove the one that the pod sets",
    ),
    "more to say than fits": (
        runtime_config(
            "NVIDIA_GPU_MEMORY_LIMIT=1", annotations={**CONTAINERD, "io.kubernetes.cri.sandbox-name": "a" * 20_000}
        ),
        "does not fit",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), REFUSED_BUNDLES.values(), ids=REFUSED_BUNDLES)
async def test_an_unreadable_bundle_refuses_the_start(container: HookContainer, text: str, complaint: str) -> None:
    async with an_agent(container.socket, saying(b'{"ok":true}\n')):
        status, said = await container.configured(text).start("--if-absent=pass")
    assert status == 1
    assert complaint in said


async def test_a_bundle_of_15_mib_is_read(container: HookContainer) -> None:
    large = runtime_config("A=" + "a" * (15 << 20), "NVIDIA_GPU_MEMORY_LIMIT=1", annotations=CONTAINERD)
    async with an_agent(container.socket, saying(b'{"ok":true}\n')):
        assert await container.configured(large).start() == (0, "")


REFUSED_STATES = {
    "nothing": (b"", "not JSON"),
    "cut": (b'{"pid":', "not JSON"),
    "larger than 1 MiB": (b" " * (1 << 20) + b"{}", "File too large"),
    "no bundle there": (b'{"id":"a","pid":1,"bundle":"/nowhere"}', "/nowhere/config.json: No such file"),
}


@pytest.mark.parametrize(("state", "complaint"), REFUSED_STATES.values(), ids=REFUSED_STATES)
async def test_an_unreadable_state_refuses_the_start(container: HookContainer, state: bytes, complaint: str) -> None:
    status, said = await container.start("--if-absent=pass", state=state)
    assert status == 1
    assert complaint in said


async def test_an_endless_state_refuses_the_start(container: HookContainer) -> None:
    process = await asyncio.create_subprocess_exec(
        container.program, "--timeout=1", stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b'{"pid":')
    assert await process.stderr.read() == b"vrampack-hook: reading the state: Connection timed out\n"
    assert await process.wait() == 1
    process.stdin.close()


async def test_a_process_that_is_gone_refuses_the_start(container: HookContainer) -> None:
    async with an_agent(container.socket, saying(b'{"ok":true}\n')):
        status, said = await replace(container, pid=2**22).start()
    assert status == 1
    assert "/proc/4194304/cgroup" in said


MISUSES = [["--timeout=0"], ["--timeout=61"], ["--timeout=1s"], ["--if-absent=maybe"], ["--unknown"], ["word"]]


@pytest.mark.parametrize("arguments", MISUSES, ids=lambda arguments: str(arguments[0]))
async def test_invalid_arguments_refuse_every_start(container: HookContainer, arguments: list[str]) -> None:
    status, _ = await container.start(*arguments)
    assert status == 2
