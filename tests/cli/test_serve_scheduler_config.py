"""`vrampack serve --scheduler-config FILE`: reported in the log and counted, or refused with the reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from extender.app import ExtenderOptions, run_extender
from extender.settings import load_settings
from tests.support.extender_process import ExtenderProcess, run_extender_process
from tests.support.manifests import MANIFESTS
from vrampack.cli.main import main
from vrampack.config.errors import SettingsError
from vrampack.simulator.apiserver import ApiServer

SHIPPED = MANIFESTS / "second-scheduler" / "scheduler.yaml"
BEHIND = "  - urlPrefix: http://127.0.0.1:9/other\n    filterVerb: filter\n"


async def findings(service: ExtenderProcess) -> float:
    page = (await service.get(f"{service.health}/metrics"))[1]
    (line,) = [line for line in page.splitlines() if line.startswith("vrampack_scheduler_config_findings ")]
    return float(line.rpartition(" ")[2])


async def test_findings_are_warnings_and_are_counted(tmp_path: Path) -> None:
    text = SHIPPED.read_text().replace("nodeCacheCapable: true", "").replace("weight: 10", "weight: 1")
    (tmp_path / "scheduler.yaml").write_text(text)
    flags = ("--scheduler-config", str(tmp_path / "scheduler.yaml"))
    async with ApiServer() as api, run_extender_process(tmp_path, api.url, *flags) as service:
        await service.wait_until_ready()
        assert await findings(service) == 2
        service.process.send_signal(signal.SIGTERM)
        assert await service.wait_for_exit() == 0
        log = await service.read_log()
    said = [line.partition(" WARNING extender.app ")[2] for line in log.splitlines() if "scheduler conf" in line]
    assert [line.partition("problem=")[2].partition(" ")[0] for line in said] == [
        "extenders[0].nodeCacheCapable",
        "extenders[0].weight",
    ]


@pytest.mark.parametrize("text", [None, "a: [", "kind: Pod\n"], ids=["missing", "not YAML", "another kind"])
def test_unusable_file_exits_2_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "scheduler.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["serve", "--scheduler-config", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"vrampack: {path}: ")


@pytest.mark.parametrize("decide", ["filter", "auto", "{schedulers: {batch: filter}}"])
async def test_a_decision_in_filter_before_another_extender_is_refused(tmp_path: Path, decide: str) -> None:
    path, config = tmp_path / "scheduler.yaml", tmp_path / "extender.yaml"
    path.write_text(SHIPPED.read_text() + BEHIND)
    config.write_text(f"apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\ndecide: {decide}\n")
    with pytest.raises(
        SettingsError, match=r"scheduler\.yaml: extenders\[1\] \(http://127\.0\.0\.1:9/other\) comes after"
    ):
        await run_extender(ExtenderOptions(load_settings(config), "test", scheduler_config=path))
