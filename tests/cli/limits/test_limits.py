"""Who holds what, as a table and as JSON; and what is said when nobody answers."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from aiohttp import web

from tests.support.processes import choose_free_ports
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.status.http import serve_status
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
    "nobody holds anything": (IDLE, "No process of node gpu-0 holds anything; 2 are connected.\n"),
    "another back end": (OTHER, "Limits of node gpu-0 are not held by module or library: enforcement is watch.\n"),
}


async def asked(status: LimitsStatus, *arguments: str) -> int:
    (port,) = choose_free_ports(1)
    async with serve_status(f"127.0.0.1:{port}", AgentMetrics("test", node="n"), lambda: "", lambda: status):
        return await asyncio.to_thread(main, ["status", "--address", f"127.0.0.1:{port}", *arguments])


@pytest.mark.parametrize(("status", "table"), TABLES.values(), ids=TABLES)
async def test_as_a_table(status: LimitsStatus, table: str, capsys: Said) -> None:
    assert await asked(status) == 0
    assert capsys.readouterr().out == table


async def test_as_json_with_the_same_values(capsys: Said) -> None:
    assert await asked(BUSY, "-o", "json") == 0
    out = capsys.readouterr().out
    assert msgspec.json.decode(out, type=LimitsStatus) == BUSY
    assert json.loads(out)["containers"][0]["processes"][0] == {"pid": 41207, "heldBytes": 3192 * MIB, "refused": 0}
    assert json.loads(out)["kind"] == "ShimStatus"


async def test_nobody_answers(capsys: Said) -> None:
    (port,) = choose_free_ports(1)
    assert await asyncio.to_thread(main, ["status", "--address", f"127.0.0.1:{port}"]) == 1
    assert f"vrampack: no answer from an agent at 127.0.0.1:{port}: " in capsys.readouterr().err


@pytest.mark.parametrize(("status", "body"), [(404, "{}"), (200, "hello"), (200, '{"kind": "Pod"}')])
async def test_somebody_else_answers(status: int, body: str, capsys: Said) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_get("/limits", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = choose_free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        assert await asyncio.to_thread(main, ["status", "--address", f"127.0.0.1:{port}"]) == 1
    finally:
        await runner.cleanup()
    assert "is it the health address of an agent of this version?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["status", "--address", "here"], ["stop"], []])
def test_misuse(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
