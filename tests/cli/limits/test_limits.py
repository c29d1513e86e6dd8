"""`vrampack limits`: its table, its JSON, and its message when no agent answers."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.status.http import StatusPages, serve_status
from vrampack.agent.status.schema import LimitedContainer, LimitedProcess, LimitsStatus
from vrampack.cli.limits.main import main

Said = pytest.CaptureFixture[str]
MIB = 1 << 20

BUSY = LimitsStatus(
    node="gpu-0",
    enforcement="preload",
    driver_version="580.95.05",
    connected=3,
    containers=(
        LimitedContainer(
            *("default", "app-3g-v1-0", "uid-a", "main", "GPU-0", 0),
            limit_bytes=4301 * MIB,
            used_bytes=3193 * MIB,
            peak_bytes=3300 * MIB,
            refused=0,
            processes=(LimitedProcess(41207, 3192 * MIB, 0), LimitedProcess(41300, MIB // 2 + MIB // 2, 0)),
        ),
        LimitedContainer(
            *("default", "app-6g-v1", "uid-b", "main", "GPU-0", 0),
            limit_bytes=4301 * MIB,
            used_bytes=0,
            peak_bytes=1,
            refused=12,
            processes=(),
        ),
        LimitedContainer("", "", "uid-c", "", "GPU-9", None, None, 5, 5, 0, (LimitedProcess(7, 5, 0),)),
    ),
)
TABLE = """\
NAMESPACE  POD          CONTAINER   CARD  USED(MiB)  LIMIT(MiB)  PEAK(MiB)  REFUSED  PIDS(MiB)
default    app-3g-v1-0  main           0       3193        4301       3300        0  41207=3192,41300=1
default    app-6g-v1    main           0          0        4301          1       12  -
-          uid-c        -          GPU-9          1           -          1        0  7=1
"""
IDLE = LimitsStatus(node="gpu-0", enforcement="preload", connected=2)
OTHER = LimitsStatus(node="gpu-0", enforcement="watch")
TABLES = {
    "some hold something": (BUSY, TABLE),
    "no process holds anything": (IDLE, "No process of node gpu-0 holds anything; 2 are connected.\n"),
    "another back end": (OTHER, "Limits of node gpu-0 are not enforced by module or library: enforcement is watch.\n"),
}


def build_settings(path: Path) -> AgentConfiguration:
    listen = {"health": "", "status_socket": str(path)}
    return AgentConfiguration.model_validate(
        {"apiVersion": "vrampack.dev/v1", "kind": "AgentConfiguration", "listen": listen}
    )


async def asked(path: Path, status: LimitsStatus, *arguments: str) -> int:
    pages = StatusPages(AgentMetrics("test", node="n"), lambda: "", lambda: status)
    async with serve_status(build_settings(path), pages):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116 - of a socket in memory
        return await asyncio.to_thread(main, ["status", "--socket", str(path), *arguments])


@pytest.mark.parametrize(("status", "table"), TABLES.values(), ids=TABLES)
async def test_limits_are_printed_as_a_table(tmp_path: Path, status: LimitsStatus, table: str, capsys: Said) -> None:
    assert await asked(tmp_path / "status.sock", status) == 0
    assert capsys.readouterr().out == table


async def test_limits_are_printed_as_json_with_the_same_values(tmp_path: Path, capsys: Said) -> None:
    assert await asked(tmp_path / "status.sock", BUSY, "-o", "json") == 0
    out = capsys.readouterr().out
    assert msgspec.json.decode(out, type=LimitsStatus) == BUSY
    assert json.loads(out)["containers"][0]["processes"][0] == {"pid": 41207, "heldBytes": 3192 * MIB, "refused": 0}
    assert json.loads(out)["kind"] == "ShimStatus"


def test_a_missing_agent_is_reported(tmp_path: Path, capsys: Said) -> None:
    assert main(["status", "--socket", f"{tmp_path}/status.sock"]) == 1
    assert f"vrampack: no answer from an agent at {tmp_path}/status.sock: " in capsys.readouterr().err


@pytest.mark.parametrize(("status", "body"), [(404, "{}"), (200, "hello"), (200, '{"kind": "Pod"}')])
async def test_an_answer_that_is_not_an_agents_is_reported(
    tmp_path: Path, status: int, body: str, capsys: Said
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_get("/limits", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    path = tmp_path / "status.sock"
    await web.UnixSite(runner, path).start()
    try:
        assert await asyncio.to_thread(main, ["status", "--socket", str(path)]) == 1
    finally:
        await runner.cleanup()
    assert "is it the listen.status_socket of an agent of this version" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["status", "--address", "127.0.0.1:12347"], ["stop"], []])
def test_invalid_arguments_exit_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
