"""What `manifests/monitoring` holds: every alert has a runbook and a scenario, every series it queries exists, and selectors select."""

from __future__ import annotations

import html
import re

import pytest

from dashboards.__main__ import FOLDER, render_dashboard
from dashboards.definitions import DASHBOARDS
from dashboards.panels import SOURCES, Dashboard
from tests.support.manifests import MANIFESTS, find_containers, load_documents, load_rendered
from tests.support.rule_files import Json, list_alerts, list_rules, load_groups

ROOT = MANIFESTS.parent
RUNBOOKS = ROOT / "docs" / "runbooks"
WEBHOOK_SERVICES = MANIFESTS / "webhook" / "common" / "service.yaml"
PICTURES = ROOT / "docs" / "pictures"
DRAWN = re.compile("<title>(.*?)</title><desc>(.*?)</desc>", re.DOTALL)
SCENARIOS = ROOT / "tests" / "alerts"
HEADINGS = ["## What it means", "## How to confirm", "## What to do"]
MAX_RUNBOOK_LINES = 60
SUFFIXES = ("_bucket", "_sum", "_count")
"""The suffixes of a histogram's series."""
ALERTS = {rule["alert"]: rule for rule in list_alerts()}
PANELS = [(dashboard, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]


def read_scenarios(pattern: str) -> str:
    return "\n".join(path.read_text() for path in sorted(SCENARIOS.glob(pattern)))


def find_series(query: str) -> set[str]:
    """The metrics of ours that a query names."""
    found = set(re.findall(r"\bvrampack[\w:]*", re.sub(r'"[^"]*"', "", query)))
    return {name.removesuffix(suffix) for name in found for suffix in SUFFIXES if name.endswith(suffix)} | {
        name for name in found if not name.endswith(SUFFIXES)
    }


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_runbook(name: str) -> None:
    assert ALERTS[name]["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{name}.md")
    lines = (RUNBOOKS / f"{name}.md").read_text().splitlines()
    assert lines[0] == f"# {name}"
    assert [line for line in lines if line.startswith("##")] == HEADINGS
    assert lines.count("```") == 2
    assert len(lines) <= MAX_RUNBOOK_LINES


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_scenario_in_which_it_fires_and_clears(name: str) -> None:
    scenarios = read_scenarios("test_*_alerts.py") + read_scenarios("test_waiting_pods.py")
    assert [f'("{name}", "{status}")' in scenarios for status in ("firing", "resolved")] == [True, True]


def test_every_queried_series_exists() -> None:
    documented = set(re.findall(r"^\| `(vrampack\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    rules = list_rules(load_groups())
    queries = [rule["expr"] for rule in rules] + [panel.query for _, panel in PANELS]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    assert set().union(*map(find_series, queries)) - documented - recorded == set()


def test_every_recording_rule_is_used() -> None:
    rules = list_rules(load_groups())
    used = set().union(
        *(find_series(query) for query in [rule["expr"] for rule in rules] + [p.query for _, p in PANELS])
    )
    assert {rule["record"] for rule in rules if "record" in rule} - used == set()


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboard_equals_its_generated_form(dashboard: Dashboard) -> None:
    """`make dashboards` after every change."""
    assert (FOLDER / f"{dashboard.uid}.json").read_text() == render_dashboard(dashboard)


def test_the_folder_contains_no_other_dashboard() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {dashboard.uid for dashboard in DASHBOARDS}


def test_every_panel_has_a_scenario_and_none_invents_a_zero() -> None:
    compared = set(re.findall(r'\.wait_until_equal\(\s*"([^"]+)"', read_scenarios("test_*_panels.py")))
    assert compared == {panel.title for _, panel in PANELS}
    assert [panel.title for _, panel in PANELS if "vector(" in panel.query] == []
    assert len({panel.title for _, panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_the_picture_shows_each_panel_with_the_shipped_query(dashboard: Dashboard) -> None:
    """`make alerts-test panel-pictures` after a query has changed."""
    drawn = DRAWN.findall((PICTURES / f"{dashboard.uid}.svg").read_text())
    assert [(html.unescape(title), html.unescape(query)) for title, query in drawn] == [
        (panel.title, panel.query) for panel in dashboard.panels
    ]
    assert f"(pictures/{dashboard.uid}.svg)" in (ROOT / "docs" / "dashboards.md").read_text()


def test_a_query_uses_the_variables_of_its_dashboard_and_no_other() -> None:
    for dashboard, panel in PANELS:
        named = set(re.findall(r"\$(\w+)", panel.chosen_query)) - {"__rate_interval"}
        assert named <= SOURCES.keys() | dashboard.variables.keys(), panel.title


def test_every_series_of_ours_is_of_the_chosen_clusters_and_jobs() -> None:
    """Recorded series keep the cluster alone."""
    for _, panel in PANELS:
        for name, selector in re.findall(r"\b(vrampack[\w:]*)({[^}]*})?", panel.chosen_query):
            wanted = ['cluster=~"$cluster"', *['job=~"$job"'] * (":" not in name)]
            assert [each for each in wanted if each not in selector] == [], panel.title


def test_every_aggregation_of_the_rules_keeps_the_cluster() -> None:
    """Nodes of two clusters may have one name."""
    queries = [rule["expr"] for rule in list_rules(load_groups())]
    grouped = [
        found
        for query in queries
        for found in re.findall(r"(?<!:)\b(?:sum|max|min|count)\b(?! by \(cluster\b).*", query)
    ]
    joined = [found for query in queries for found in re.findall(r"\bon \((?!cluster\b).*", query)]
    assert grouped + joined == []


def test_monitors_select_what_is_installed() -> None:
    """By the labels of Services and pods of the second scheduler's shape, and of the webhook."""
    installed = load_rendered("second-scheduler") + load_documents(WEBHOOK_SERVICES)
    monitors = load_documents(MANIFESTS / "monitoring" / "monitors.yaml")
    assert {monitor["metadata"]["name"]: find_ports(monitor, installed) for monitor in monitors} == {
        "vrampack-scheduler": {12346},
        "vrampack-agent": {12347},
        "vrampack-admission": {12349},
    }


def find_ports(monitor: Json, installed: list[Json]) -> set[int]:
    """The ports that the operator would scrape."""
    wanted = monitor["spec"]["selector"]["matchLabels"]
    if monitor["kind"] == "ServiceMonitor":
        (endpoint,) = monitor["spec"]["endpoints"]
        services = [item for item in installed if item["kind"] == "Service" and has_labels(item, wanted)]
        ports = [port for item in services for port in item["spec"]["ports"]]
        return {port["port"] for port in ports if port["name"] == endpoint["port"]}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    pods = [item for item in installed if item["kind"] == "DaemonSet" and has_labels(item["spec"]["template"], wanted)]
    ports = [port for item in pods for container in find_containers(item) for port in container["ports"]]
    return {port["containerPort"] for port in ports if port["name"] == endpoint["port"]}


def has_labels(item: Json, wanted: Json) -> bool:
    labels: dict[str, str] = item["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in wanted.items())
