"""`vrampack ui` as a program: what it prints, what it refuses, and a replay that it runs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.ui.objects import a_bound_pod, a_node, a_waiting_pod
from tests.cli.ui.ui_site import PodRights, UiSite, run_ui
from vrampack.cli.main import main
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

WITHIN_SECONDS = 100
LISTENING = "0A"
CLUSTER = (a_node("gpu-1"), a_bound_pod("a", "gpu-1", 0, 8), a_bound_pod("b", "gpu-1", 1, 6), a_waiting_pod("w", 10))
"""Of two cards of 15 units 7 and 9 stay free."""


@asynccontextmanager
async def run_command(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    async with ApiServer() as api:
        api.create(a_node("gpu-1"))
        flags = ["--kubeconfig", str(write_kubeconfig(folder, api.url)), *arguments]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "vrampack.cli",
            "ui",
            *flags,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(folder)},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def read_url(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(WITHIN_SECONDS):
        line = (await process.stdout.readline()).decode() if process.stdout else ""
    found = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+/open\?key=[\w-]{43})\n", line)
    assert found is not None, line
    return found[1]


def list_listeners(port: int) -> list[str]:
    """The addresses on which something listens at this port, as the kernel writes them."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    return [line[1] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == LISTENING]


async def test_ui_listens_on_loopback_only_and_ends_at_sigterm(tmp_path: Path) -> None:
    async with run_command(tmp_path) as process:
        port = int((await read_url(process)).partition("127.0.0.1:")[2].partition("/")[0])
        assert list_listeners(port) == [f"0100007F:{port:04X}"]
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_SECONDS):
            _, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")


async def test_the_key_is_not_logged(tmp_path: Path) -> None:
    async with run_command(tmp_path) as process:
        url = await read_url(process)
        host, _, path = url.removeprefix("http://").partition("/")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(host.partition(":")[2]))
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b"set-cookie: vrampack-ui-" in (await reader.read()).lower()
        writer.close()
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(WITHIN_SECONDS):
            _, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")


def test_a_port_in_use_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["ui", "--port", str(port), "--kubeconfig", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"vrampack: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("flag", [("--report", "none"), ("--kubeconfig", "none")], ids=" ".join)
def test_a_file_that_is_not_there_exits_1(
    flag: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", flag[0], str(tmp_path / flag[1])]) == 1
    assert capsys.readouterr().err.startswith("vrampack: ")


@pytest.mark.parametrize(
    "flag", ["--port=-1", "--port=65536", "--port=http", "--metrics=nonsense", "--metrics=http://[a"]
)
def test_an_invalid_value_exits_2(flag: str) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["ui", flag])
    assert raised.value.code == 2


async def wait_for_replay(site: UiSite) -> str:
    """The page once the replay has ended."""
    async with asyncio.timeout(WITHIN_SECONDS):
        await asyncio.wait({task for task in (site.job._task,) if task is not None})
    return (await site.ask("/simulate")).text


async def test_the_cluster_is_replayed_under_chosen_policies(tmp_path: Path) -> None:
    """Packed, 8 and 6 share a card and leave one for the 10 that wait; what is no policy is left out."""
    async with run_ui(tmp_path, CLUSTER) as site:
        await site.post("/simulate", policy=["binpack", "spread", "--report=/x"])
        page = await wait_for_replay(site)
        report = (await site.ask("/reports/replay")).text
    assert "The replay under binpack, spread has ended." in page
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row)[:2] for row in re.findall(r"<tr>.*?</tr>", report)]
    assert rows == [[], ["as it is", "2/3"], ["binpack", "3/3"], ["spread", "2/3"]]


async def test_a_replay_without_a_policy_says_what_to_choose(tmp_path: Path) -> None:
    async with run_ui(tmp_path, CLUSTER) as site:
        answer = await site.post("/simulate", policy=["none-such"])
        page = (await site.ask(answer.headers["Location"])).text
    assert "Choose at least one policy or preset." in page


async def test_an_impossible_replay_says_why(tmp_path: Path) -> None:
    """Somebody who may not list all pods cannot take a snapshot."""
    async with run_ui(tmp_path, CLUSTER, rights=PodRights({"default"}, ["default", "secret"])) as site:
        await site.post("/simulate", policy="spread")
        page = await wait_for_replay(site)
    assert "a snapshot needs list of nodes, pods" in page
