"""What exists is documented, and what is documented exists: metrics, events, annotations, reasons, flags."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from extender.events import EventReason
from extender.metrics import AdmissionMetrics, ExtenderMetrics
from extender.state.collector import LedgerCollector, LedgerSnapshot
from extender.state.node_series import NODE_METRICS
from vrampack.agent.admission.fence import REJECTION_REASONS
from vrampack.agent.events import AgentEventReason
from vrampack.agent.metrics import AgentMetrics, AgentSnapshot
from vrampack.cards import well_known
from vrampack.cards.reasons import UnfitReason
from vrampack.cli import admission, agent, serve, snapshot
from vrampack.cli.card import main as card
from vrampack.cli.certificates import main as certificates
from vrampack.cli.demo import main as demo
from vrampack.cli.explain import main as explain
from vrampack.cli.limits import main as shim
from vrampack.cli.main import COMMANDS
from vrampack.cli.simulate import main as simulate
from vrampack.cli.simulate import replay_flags as replay
from vrampack.cli.support_bundle import main as support_bundle
from vrampack.cli.ui import main as ui
from vrampack.cli.version import VERSION

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def first_column(page: str, heading: str = "") -> set[str]:
    """The code spans that open the rows of the tables before a heading, or behind it."""
    before, _, behind = (DOCS / page).read_text().partition(heading or "\n## The agent")
    return set(re.findall(r"^\| `([^`]+)`", behind if heading else before, re.MULTILINE))


def names_of(metrics: list[Metric]) -> set[str]:
    return {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics}


def test_every_metric_is_documented() -> None:
    metrics = ExtenderMetrics(VERSION)
    view = LedgerSnapshot((), (), (), b"", {}, is_synced=False, now=0.0)
    existing = names_of(list(metrics.registry.collect())) | names_of(list(LedgerCollector(view).collect()))
    existing |= NODE_METRICS.keys() | names_of(list(AdmissionMetrics(VERSION).registry.collect()))
    assert first_column("metrics.md") == existing


def test_every_metric_of_the_agent_is_documented() -> None:
    metrics = AgentMetrics(VERSION, node="n")
    metrics.register_snapshot(AgentSnapshot)
    assert first_column("metrics.md", "\n## The agent\n") == names_of(list(metrics.registry.collect()))


def test_every_event_reason_is_documented() -> None:
    assert first_column("events.md") == {reason.value for reason in EventReason}
    assert first_column("events.md", "\n## The agent's\n") == {reason.value for reason in AgentEventReason}


def test_every_reason_of_a_refused_start_is_documented() -> None:
    (row,) = re.findall(r"^\| `vrampack_agent_starts_total`.*$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert row.partition("why they may not: ")[2].removesuffix(" |").split(", ") == list(REJECTION_REASONS)


def test_every_reason_of_filter_is_documented_in_its_order() -> None:
    text = (DOCS / "reasons.md").read_text()
    assert re.findall(r"^\| `([^`]+)`", text, re.MULTILINE) == [reason.value for reason in UnfitReason]


def test_every_annotation_is_documented() -> None:
    text = (DOCS / "records.md").read_text()
    names = [value for name, value in vars(well_known).items() if name.isupper() and isinstance(value, str)]
    assert [name for name in names if name not in text and name != well_known.CDI_KIND] == []


def test_every_flag_of_serve_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    flags = {flag for action in serve.build_parser()._actions for flag in action.option_strings}
    assert {flag for flag in flags if flag.startswith("--") and flag not in text} == {"--help"}


@pytest.mark.parametrize(
    ("parser", "page", "heading"),
    [
        (admission.build_parser, "cli.md", "##"),
        (agent.build_parser, "cli.md", "##"),
        (card.build_parser, "cli.md", "##"),
        (certificates.build_parser, "cli.md", "##"),
        (demo.build_parser, "cli.md", "##"),
        (shim.build_parser, "cli.md", "##"),
        (simulate.build_parser, "cli.md", "##"),
        (replay.build_parser, "cli.md", "##"),
        (snapshot.build_parser, "cli.md", "##"),
        (support_bundle.build_parser, "cli.md", "##"),
        (explain.build_parser, "explain.md", "#"),
        (ui.build_parser, "ui.md", "#"),
    ],
)
def test_every_flag_of_a_command_is_documented_and_no_other(
    parser: Callable[[], argparse.ArgumentParser], page: str, heading: str
) -> None:
    section = (DOCS / page).read_text().partition(f"{heading} {parser().prog}\n")[2].partition(f"\n{heading} ")[0]
    documented = set(re.findall(r"^\| (?:`-\w`, )?`(--[\w-]+)[ `]", section, re.MULTILINE))
    flags = {flag for action in parser()._actions for flag in action.option_strings if flag.startswith("--")}
    assert documented == flags - {"--help"}


def test_every_command_is_documented() -> None:
    table = (DOCS / "cli.md").read_text().partition("\n## ")[0]
    assert [name for name in (*COMMANDS, "version") if f"`vrampack {name}`" not in table] == []


def test_no_page_advises_to_ignore_the_variable_that_hands_out_cards() -> None:
    """With `false` the runtime drops it from unprivileged containers: those of pods that ask, and the agent's."""
    setting = "accept-nvidia-visible-devices-envvar-when-unprivileged"
    pages = {page.name: re.sub(r"\s+", " ", page.read_text()) for page in DOCS.glob("*.md")}
    assert re.findall(f"`{setting}` stays `(\\w+)`", pages["install.md"]) == ["true"]
    assert f"What does not: `{setting} = false`." in pages["admission.md"]
    assert {name for name, text in pages.items() if setting in text} == {"install.md", "admission.md"}


def test_the_version_is_defined_once() -> None:
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text()


def test_links_lead_somewhere() -> None:
    dead = [
        f"{page.name}: {target}"
        for page in sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert dead == []


def test_manifests_that_a_page_names_exist() -> None:
    missing = [
        f"{page.name}: {path}"
        for page in sorted([ROOT / "README.md", *DOCS.glob("*.md")])
        for path in re.findall(r"(?<!kubernetes/)\bmanifests/[\w.+/-]*\w", page.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_each_way_of_a_hostile_tenant_is_open_or_shown_by_a_test() -> None:
    text = (DOCS / "enforcement.md").read_text().partition("### What a hostile tenant can still do")[2]
    rows = [line.split("|")[-2] for line in text.partition("\nNo back end")[0].splitlines() if line.startswith("| ")][
        1:
    ]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(tests/[^`]+)`", row)
        assert named or "open" in row
        assert [name for name in named if not (ROOT / name).exists()] == []
