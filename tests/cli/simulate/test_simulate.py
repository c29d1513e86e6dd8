"""`vrampack simulate` as a command: policies from files, the report, and how far it is."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.simulate.main import DATA, main, parse_policy
from vrampack.cli.simulate.progress import format_progress
from vrampack.cli.simulate.report import Chart, ReportTable, render_report

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"


class PageReader(HTMLParser):
    """What a browser would make of a page: its tags, closed in their order, and whatever it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_policy_argument_is_a_name_or_a_file_with_a_default_policy(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    assert parse_policy("best-fit") == TunedPolicy("best-fit")
    file.write_text(HEAD + "policy: {default: tessellate, weights: {opening: 2}, bounds: {card_use_percent: 85}}\n")
    parsed = parse_policy(str(file))
    assert parsed == TunedPolicy("tessellate", (("opening", 2.0),), 85)
    file.write_text("apiVersion: vrampack.dev/v1\nkind: PlacementPolicy\npolicy: {default: spread}\n")
    assert parse_policy(str(file)) == parse_policy("fast") == TunedPolicy("spread")
    assert parsed.label == "tessellate opening=2 card_use_percent=85"


@pytest.mark.parametrize(("text", "said"), [("no-such", "is neither a file nor one of"), ("wrong.yaml", "polcy")])
def test_an_invalid_policy_argument_exits_2(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text(HEAD + "polcy: {}\n")
    with pytest.raises(SystemExit) as ended:
        main(["openb", "--policy", text])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_report_is_one_page_that_loads_nothing() -> None:
    chart = Chart("default", "asked for, %", "allocated, %", {"a<b": [(0, 0), (100, 95.2)], "empty": []})
    table = ReportTable(("TRACE", "POLICY", "@100"), [("default", "a<b", "95.20")], first_number=2)
    page = PageReader(render_report("vrampack simulate openb", "vrampack simulate openb --seeds 1", [chart], table))
    assert page.open == []
    assert page.loaded == []
    assert page.tags.count("polyline") == 1
    assert {"a<b", "95.20", "vrampack simulate openb --seeds 1"} <= set(page.texts)


def test_the_command_writes_the_report_beside_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "out.html"
    asked = ["cards", "--test", "fill", "--cluster", "small16", "--requests", "uniform", "--seeds", "1"]
    assert main([*asked, "--policy", "binpack", "--report", str(report)]) == 0
    shown = capsys.readouterr().out.splitlines()
    page = PageReader(report.read_text())
    assert [cell for cell in shown[1].split() if cell not in page.texts] == []


def test_progress_shows_completion_and_remaining_time() -> None:
    assert format_progress(0, 4, 0.0) == "[..............................] 0/4"
    assert format_progress(1, 4, 10.0) == "[#######.......................] 1/4 30 s left"


def test_a_json_row_is_written_as_soon_as_its_runs_have_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second trace is not there, which ends the command."""
    nodes = (DATA / "openb" / "openb_node_list_gpu_node.csv").read_text().splitlines(keepends=True)
    (tmp_path / "openb").mkdir()
    (tmp_path / "openb" / "openb_node_list_gpu_node.csv").write_text("".join(nodes[:301]))
    shutil.copy(DATA / "openb" / "openb_pod_list_cpu050.csv.gz", tmp_path / "openb")
    flags = ["--data", str(tmp_path), "--trace", "cpu050", "--trace", "cpu100", "--seeds", "1", "--json"]
    assert main(["openb", *flags]) == 1
    said = capsys.readouterr()
    (row,) = said.out.splitlines()
    assert json.loads(row)["trace"] == "cpu050"
    assert said.err.endswith("openb_pod_list_cpu100.csv.gz: No such file or directory\n")
