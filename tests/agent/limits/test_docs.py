"""The agent finds what `docs/limits.md` tells people to write, and the page uses the words of the setting."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.agent.limits.limit_node import READY, LimitNode
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.detection import detect_capabilities
from vrampack.agent.limits.driver_branches import KNOWN_DRIVER_BRANCHES
from vrampack.agent.limits.kmod.backend import DEFAULT_BUDGETS, MAX_BUDGETS
from vrampack.agent.limits.preload.rate_limit import RateLimits

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "limits.md").read_text()
SNIPPETS = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_hook_installed_as_documented_is_detected(tmp_path: Path, snippet: str) -> None:
    path = tmp_path / "vrampack.json"
    path.write_text(snippet)
    folders = [tmp_path] if "cdiVersion" in json.loads(snippet) else []
    findings = detect_capabilities(
        driver_version="",
        has_mig=False,
        has_confidential_computing=False,
        cgroup_version=2,
        cdi_folders=folders,
        runtime_specs=[path],
    )
    assert findings.has_hook


def test_limits_page_contains_both_hook_files() -> None:
    assert len(SNIPPETS) == 2


def test_every_back_end_is_documented_in_the_table(tmp_path: Path) -> None:
    table = PAGE.partition("## Back ends")[2].partition("The setting is")[0]
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert documented == {row.mode for row in BACK_ENDS}
    node = LimitNode(tmp_path)
    for row in node.rows:
        if row.is_enforcing:
            assert row.build(READY, node.context).traits.survives in table


def test_the_library_s_branches_and_pace_are_as_documented() -> None:
    (branches,) = re.findall(r"a driver of branch (.*?)\.", PAGE, re.DOTALL)
    assert set(map(int, re.findall(r"\d+", branches))) == KNOWN_DRIVER_BRANCHES
    limits = RateLimits()
    rates = f"{limits.messages_per_second:,.0f} a second for each pod, {limits.node_messages_per_second:,.0f} for all"
    counts = f"{limits.max_processes:,} processes of a pod at once, {limits.node_max_processes:,} of all"
    assert rates in PAGE
    assert f"{counts}, of which the first {limits.guaranteed_processes} of each pod are never refused" in PAGE
    assert f"up to {limits.name_timeout_seconds:.0f} s" in PAGE


def test_the_number_of_containers_per_card_is_as_documented() -> None:
    assert f"A card has room for {MAX_BUDGETS} instances" in PAGE
    assert f"where the module's own {DEFAULT_BUDGETS} still stands in `max_inst` the agent writes {MAX_BUDGETS}" in PAGE


def test_every_option_of_the_hook_is_documented_with_its_default() -> None:
    source = (ROOT / "shim" / "hook" / "main.c").read_text()
    known = set(re.findall(r'\{ "([\w-]+)", required_argument', source))
    assert set(re.findall(r"^\| `--([\w-]+)", PAGE, re.MULTILINE)) == known
    socket, timeout = re.findall(r'options = \{ "(.*?)", (\d+), false \}', source)[0]
    assert f"| `{socket}` |" in PAGE
    assert f"| {timeout} |" in PAGE
