"""`vrampack agent`: the real process on a kubelet, an API server and NVIDIA's library simulated in C."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.fakes.nvml.profiles import PROFILES
from tests.support.agent_process import run_agent
from vrampack.cli import agent

V100 = PROFILES["v100"]


async def test_the_agent_registers_answers_probes_and_exits_cleanly() -> None:
    """And its log, where that is asked for, is one JSON object per line."""
    async with run_agent(V100, "--log-format", "json", "--log-level", "debug") as running:
        await running.wait_until_registered()
        assert await running.get("/healthz") == (200, "ok\n")
        assert await running.get("/readyz") == (200, "ok\n")
        status, page = await running.get("/metrics")
        assert status == 200
        uuid = V100[0].uuid
        assert f'vrampack_agent_card_units{{UUID="{uuid}",gpu="0",node="gpu-0"}} 15.0' in page
        assert "vrampack_agent_offered 1.0" in page
        assert re.findall(r"^\w+_created\b", page, re.MULTILINE) == []
        assert await running.stop() == 0
        assert list(running.kubelet.plugins_folder.glob("vrampack-*.sock")) == []
        lines = [json.loads(line) for line in (await running.read_log()).splitlines()]
    assert {"ts", "level", "logger", "msg"} <= set.intersection(*(set(line) for line in lines))
    assert any(line["msg"].startswith("registered resource=") for line in lines)
    assert any("stopped" in line["msg"] for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["ts"]) for line in lines)


async def test_the_agent_is_ready_and_idle_without_cards() -> None:
    async with run_agent(()) as running:
        await running.wait_for_answer("/readyz", lambda status, _: status == 200)
        assert running.kubelet.history.registrations == []
        assert await running.stop() == 0


async def test_the_agent_is_alive_but_not_ready_until_its_cards_are_known() -> None:
    async with run_agent(V100, hangs=True) as running:
        assert (await running.wait_for_answer("/healthz", lambda status, _: status == 200))[1] == "ok\n"
        status, text = await running.get("/readyz")
        assert (status, text) == (503, "the cards of this node are not known yet\n")
        running.machine.heal()
        await running.wait_until_registered()


def test_a_standalone_agent_takes_no_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yaml"
    metrics = "{address: '127.0.0.1:1', authorization: token, tls: {cert_file: /a, key_file: /b}}"
    config.write_text(f"apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\nmetrics: {metrics}\n")
    assert agent.main(["--standalone", "--config", str(config)]) == 2
    assert "metrics.authorization: token asks an API server" in capsys.readouterr().err


def test_fault_in_the_configuration_file_exits_2_and_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\nunit_mb: 3\n")
    assert agent.main(["--node-name", "gpu-0", "--config", str(config)]) == 2
    assert "agent.yaml:3: unit_mb: no such field" in capsys.readouterr().err


def test_a_bad_flag_ends_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert agent.main(["--node-name", "gpu-0", "--health-listen", "nowhere"]) == 2
    assert "listen.health: 'nowhere' is not HOST:PORT" in capsys.readouterr().err


def test_a_missing_node_name_is_reported_with_its_usual_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert agent.main([]) == 2
    assert "--node-name or $NODE_NAME" in capsys.readouterr().err
