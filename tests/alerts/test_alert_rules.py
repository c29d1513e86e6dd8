"""What each alert does with given series, by `promtool test rules`, and what promtool finds in the file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.alerts.scene import Programs
from tests.support.rule_files import Json, list_alerts, write_rules

INTERVAL_SECONDS = 30
"""As the monitors scrape."""


@dataclass(frozen=True, slots=True)
class AlertCase:
    """One alert: series with their values every 30 s, and at which minutes it is silent and fires."""

    series: Mapping[str, str]
    silent_at: int
    fires_at: int
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside the alert's own."""
    clears_at: int = 120


CONTAINER = 'node="n",UUID="GPU-0",gpu="0",namespace="ml",pod="a",container="main"'
CASES = {
    "VrampackCardOvercommitted": AlertCase(
        # the other replica sees one card less
        {
            'vrampack_overcommitted_cards{pod="a"}': "0x20 2x40 0x200",
            'vrampack_overcommitted_cards{pod="b"}': "0x20 1x40 0x200",
        },
        silent_at=10,
        fires_at=12,
        summary="2 cards are promised beyond their memory.",
    ),
    "VrampackPodsPendingByCard": AlertCase(
        {
            'vrampack_pending_pods{reason="fragmented",pod="a"}': "0x20 3x60 0x200",
            'vrampack_pending_pods{reason="fits",pod="a"}': "5x300",
        },
        silent_at=24,
        fires_at=26,
        summary="3 pods wait although a node has enough free GPU memory, none of it on one card.",
        labels={"reason": "fragmented"},
    ),
    "VrampackPodWaitsBeyondFlush": AlertCase(
        # 30 s more with each scrape: over 6 minutes after the twelfth
        {'vrampack_activation_overdue_seconds{pod="a"}': "0+30x40 0x200"},
        silent_at=7,
        fires_at=10,
        summary="A pod has had a place for 10m 0s and was not activated.",
    ),
    "VrampackEvictedInVain": AlertCase(
        {
            'vrampack_card_preemptions_total{result="in_vain",pod="a"}': "0x40 1x300",
            'vrampack_card_preemptions_total{result="served",pod="a"}': "0+1x340",
        },
        silent_at=20,
        fires_at=22,
        summary="Pods were evicted for 1 pods that did not get their cards.",
        clears_at=40,
    ),
    "VrampackBindsFailing": AlertCase(
        {
            'vrampack_bind_total{result="ok"}': "0+30x40 1200+24x60 2640+30x200",
            'vrampack_bind_total{result="not_written"}': "0x40 0+6x60 360x200",
            'vrampack_bind_total{result="conflict"}': "0+30x300",
        },
        silent_at=20,
        fires_at=45,
        # 6 of 24 + 6 + 30
        summary="10% of all binds fail.",
    ),
    "VrampackRightsDenied": AlertCase(
        {'vrampack_apiserver_denied{pod="a"}': "0x20 1x60 0x200", 'vrampack_apiserver_denied{pod="b"}': "0x300"},
        silent_at=10,
        fires_at=12,
        summary="The API server denies every call of an extender about pods.",
    ),
    "VrampackInternalErrors": AlertCase(
        {'vrampack_internal_errors_total{during="filter",pod="a"}': "0x40 1x300"},
        silent_at=20,
        fires_at=22,
        summary="1 internal errors of vrampack during filter in 15 minutes.",
        labels={"during": "filter"},
    ),
    "VrampackForeignAnswers": AlertCase(
        {
            'vrampack_apiserver_requests_total{code="foreign",verb="get",pod="a"}': "0x40 0+1x20 20x200",
            'vrampack_apiserver_requests_total{code="200",verb="get",resource="pods"}': "0+10x300",
            'vrampack_agent_apiserver_requests_total{code="foreign",verb="get",pod="b"}': "0x40 0+1x20 20x200",
        },
        silent_at=20,
        fires_at=30,
        summary="Another server answered 38 calls to the API server in 10 minutes.",
    ),
    "VrampackExtenderAway": AlertCase(
        {'vrampack_cache_synced{pod="a"}': "1x20 stale _x59 1x200"},
        silent_at=14,
        fires_at=17,
        summary="No extender is scraped.",
    ),
    "VrampackLedgerStale": AlertCase(
        {'vrampack_cache_synced{pod="a"}': "1x20 0x60 1x200", 'vrampack_cache_synced{pod="b"}': "1x300"},
        silent_at=12,
        fires_at=14,
        summary="The ledger of a is not complete or not fresh.",
        labels={"pod": "a"},
    ),
    "VrampackSecondExtender": AlertCase(
        {'vrampack_second_extender_total{pod="a"}': "0x20 1x280", 'vrampack_second_extender_total{pod="b"}': "0x300"},
        silent_at=10,
        fires_at=12,
        summary="Another extender binds pods beside a.",
        labels={"pod": "a"},
        clears_at=25,
    ),
    "VrampackNodeKeptTooLong": AlertCase(
        {
            'vrampack_kept_nodes{state="ended",pod="a"}': "0x20 2x80 0x200",
            'vrampack_kept_nodes{state="kept",pod="a"}': "3x300",
        },
        silent_at=14,
        fires_at=16,
        summary="Autoscalers may remove 2 nodes whose pods would find no card.",
    ),
    "VrampackConfigNotInForce": AlertCase(
        {
            'vrampack_config_not_in_force{reason="rejected",pod="a"}': "0x20 1x80 0x200",
            'vrampack_config_not_in_force{reason="restart",pod="a"}': "0x300",
        },
        silent_at=24,
        fires_at=27,
        summary="The configuration file of a is not in force: rejected.",
        labels={"reason": "rejected", "pod": "a"},
    ),
    "VrampackCertificateNearEnd": AlertCase(
        # promtool's clock starts at 0; it is renewed after 50 minutes
        {'vrampack_certificate_expiry_seconds{listener="verbs",pod="a"}': "605400x100 9999999x200"},
        silent_at=5,
        fires_at=30,
        summary="The certificate of verbs on a expires in 6d 23h 40m 0s.",
        labels={"listener": "verbs", "pod": "a"},
    ),
    "VrampackAgentAway": AlertCase(
        {
            'vrampack_node_memory_capacity_bytes{node="n",pod="a"}': "16x300",
            'vrampack_node_memory_capacity_bytes{node="old",pod="a"}': "16x300",
            'vrampack_node_memory_capacity_bytes{node="well",pod="a"}': "16x300",
            'vrampack_legacy_node_info{node="old",pod="a"}': "1x300",
            'vrampack_agent_build_info{node="n"}': "1x20 stale _x79 1x200",
            'vrampack_agent_build_info{node="well"}': "1x300",
            # a node of the same name in another cluster, which has its agent
            'vrampack_node_memory_capacity_bytes{cluster="b",node="n",pod="a"}': "16x300",
            'vrampack_agent_build_info{cluster="b",node="n"}': "1x300",
        },
        silent_at=18,
        fires_at=22,
        summary="The agent of n is not scraped.",
        labels={"node": "n"},
    ),
    "VrampackCardUnhealthy": AlertCase(
        {
            'vrampack_agent_card_healthy{node="n",UUID="GPU-0",gpu="0"}': "1x20 0x60 1x200",
            'vrampack_agent_card_healthy{node="n",UUID="GPU-1",gpu="1"}': "1x300",
        },
        silent_at=15,
        fires_at=17,
        summary="Card 0 of n is unhealthy.",
        labels={"node": "n", "UUID": "GPU-0", "gpu": "0"},
    ),
    "VrampackContainerOverLimit": AlertCase(
        # 1 GiB over; its neighbour is within the tolerance
        {
            f"vrampack_agent_container_memory_used_bytes{{{CONTAINER}}}": "3221225472x20 5368709120x60 0x200",
            f"vrampack_agent_container_memory_limit_bytes{{{CONTAINER}}}": "4294967296x300",
            f"vrampack_agent_container_memory_used_bytes{{{CONTAINER.replace('ml', 'web')}}}": "4831838208x300",
            f"vrampack_agent_container_memory_limit_bytes{{{CONTAINER.replace('ml', 'web')}}}": "4294967296x300",
        },
        silent_at=15,
        fires_at=17,
        summary="ml/a uses 1GiB more of a card than its limit.",
        labels={"node": "n", "UUID": "GPU-0", "gpu": "0", "namespace": "ml", "pod": "a", "container": "main"},
    ),
    "VrampackLimitsUnheld": AlertCase(
        {
            'vrampack_agent_limits_unheld{node="n"}': "0x20 1x60 0x200",
            'vrampack_agent_limits_unheld{node="m"}': "0x300",
        },
        silent_at=24,
        fires_at=27,
        summary="No back end enforces limits on n.",
        labels={"node": "n"},
    ),
    "VrampackStartsRefused": AlertCase(
        # three of a pod that is evicted, then one every two minutes
        {
            'vrampack_agent_starts_total{node="n",result="no_record"}': "0x10 1 2 3x66 4 4 4 4 5 5 5 5 6 6 6 6 7 7 7 7 8x200",
            'vrampack_agent_starts_total{node="n",result="ok"}': "0+5x300",
        },
        silent_at=30,
        fires_at=52,
        summary="n refuses starts: no_record.",
        labels={"node": "n", "result": "no_record"},
    ),
}


def test_every_alert_has_a_case() -> None:
    assert {rule["alert"] for rule in list_alerts()} == CASES.keys()


def test_promtool_finds_no_fault_in_the_rules(tmp_path: Path, programs: Programs) -> None:
    run_promtool(programs, "check", "rules", "--lint=all", "--lint-fatal", write_rules(tmp_path / "rules.json"))


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_before(name: str, tmp_path: Path, programs: Programs) -> None:
    write_rules(tmp_path / "rules.json")
    document = tmp_path / "test.json"
    document.write_text(json.dumps(build_document(name, CASES[name])))
    run_promtool(programs, "test", "rules", document)


def build_document(name: str, case: AlertCase) -> Json:
    """A test file of promtool."""
    (rule,) = (rule for rule in list_alerts() if rule["alert"] == name)
    firing = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {
            **{key: render_labels(text, case.labels) for key, text in rule["annotations"].items()},
            "summary": case.summary,
        },
    }
    expected = {case.silent_at: [], case.fires_at: [firing], case.clears_at: []}
    return {
        "rule_files": ["rules.json"],
        "evaluation_interval": f"{INTERVAL_SECONDS}s",
        "tests": [
            {
                "interval": f"{INTERVAL_SECONDS}s",
                "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
                    for minute, alerts in expected.items()
                ],
            }
        ],
    }


def render_labels(text: str, labels: Mapping[str, str]) -> str:
    """What Prometheus makes of a text's `{{ $labels.NAME }}`."""
    for label, value in labels.items():
        text = text.replace(f"{{{{ $labels.{label} }}}}", value)
    return text


def run_promtool(programs: Programs, *arguments: str | Path) -> None:
    answer = subprocess.run([programs["promtool"], *arguments], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
