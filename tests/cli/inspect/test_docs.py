"""docs/cli.md lists every flag and no other, and shows what the command really prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vrampack.cli import inspect_direct
from vrampack.cli.cluster_command import add_cluster_flags
from vrampack.cli.inspect.main import KUBECTL_SOURCE, ClusterSource, build_parser

ROOT = Path(__file__).parent.parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"
SECTION = (ROOT / "docs" / "cli.md").read_text().partition("## vrampack inspect and kubectl inspect cgpu\n")[2]
SECTION = re.split(r"^## ", SECTION, flags=re.MULTILINE)[0]
SOURCES = {"kubectl": KUBECTL_SOURCE, "vrampack": ClusterSource(add_cluster_flags, inspect_direct.open_reader)}


def flags_of(source: ClusterSource) -> set[str]:
    made = build_parser("x", "0", source)
    return {flag for action in made._actions for flag in action.option_strings if "=" not in flag}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_flag_is_documented(source: ClusterSource) -> None:
    documented = set(re.findall(r"`(--?[A-Za-z][a-z-]*)", SECTION))
    assert flags_of(source) - documented - {"-n", "--namespace"} == set()


def test_every_documented_flag_is_there() -> None:
    documented = set(re.findall(r"`(--?[A-Za-z][a-z-]*)", SECTION))
    assert documented - flags_of(SOURCES["kubectl"]) - flags_of(SOURCES["vrampack"]) == set()


@pytest.mark.parametrize("name", ["gpushare.summary", "recorded.details", "unhealthy.wide"])
def test_the_layouts_are_those_of_the_golden_files(name: str) -> None:
    """But for the end of lines that are too long for a page."""
    lines = (GOLDEN / f"{name}.txt").read_text().splitlines()
    pattern = "\n".join(re.escape(line) if len(line) <= 120 else re.escape(line[:60]) + ".*" for line in lines)
    assert re.search(rf"^```\n{pattern}\n```$", SECTION, re.MULTILINE)


def test_every_state_of_the_wide_table_is_explained() -> None:
    rows = [
        re.split(r" {2,}", line)
        for path in sorted(GOLDEN.glob("*.wide.txt"))
        for line in path.read_text().partition("\n\n")[0].splitlines()[1:]
    ]
    shown = {state for row in rows for state in row[-2].rstrip("!").split(",")}
    assert shown == set(re.findall(r"^\| `([a-z]+)` \|", SECTION, re.MULTILINE))
