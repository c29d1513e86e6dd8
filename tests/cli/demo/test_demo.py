"""The demo shows what it promises, with the exact text of the founding scenario, and with other numbers too."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.auditor import __main__ as auditor
from tests.support.demo_process import Json, demo_kept_running, list_objects, run_demo, start_demo
from vrampack.cli.demo import objects
from vrampack.cli.demo.extender_process import build_scheduler_settings
from vrampack.cli.main import main
from vrampack.simulator.scheduling.settings import SchedulerSettings

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
SHIPPED = ROOT / "manifests/second-scheduler/scheduler.yaml"
FOUNDING = """\
NAME:       cn-hangzhou.192.168.2.167
IPADDRESS:  192.168.2.167

NAME         NAMESPACE  GPU0(Allocated)
app-3g-v1-0  default    4
app-3g-v1-1  default    4
Allocated :  8 (53%)
Total :      15
--------------------------------------------------------

Allocated/Total GPU Memory In Cluster:  8/15 (53%)
"""
BEFORE = """\
NAME                       IPADDRESS      GPU0(Allocated/Total)  GPU Memory(GiB)
cn-hangzhou.192.168.2.167  192.168.2.167  0/15                   0/15
----------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
0/15 (0%)
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the whole demo; it succeeds, prints nothing else, and leaves nothing behind."""
    folder = tmp_path_factory.mktemp("story")
    done = run_demo(folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(folder.iterdir()) == []
    return done.stdout


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The output of `--json`, which ends by itself."""
    done = run_demo("--json", folder=tmp_path_factory.mktemp("document"))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_demo_shows_every_step_in_order(story: str) -> None:
    """Before, both pods on one card, one pod too many with its reason, its place at once, and a packed cluster."""
    at = [
        story.find(text)
        for text in (
            BEFORE,
            FOUNDING,
            "Each container may use 4301 MiB",
            "Pod default/app-late is pending and asks for 8 units (8 GiB) on one card.",
            "0/1 nodes are available: 1 Insufficient aliyun.com/gpu-mem.",
            "Next: free 1 unit on cn-hangzhou.192.168.2.167 GPU0",
            "pod default/app-late is on cn-hangzhou.192.168.2.167 GPU0 (8 units)",
            "41 pods run on ",
        )
    ]
    assert -1 not in at
    assert at == sorted(at)


def test_the_mixed_cluster_is_packed_and_no_pod_waits(story: str) -> None:
    """41 pods would need 42 cards if each had its own; there are 14."""
    last = story[story.index("== A mixed cluster") :]
    assert "waits for" not in last
    used = int(last.partition("41 pods run on ")[2].partition(" cards")[0])
    # One card is held whole. The other 258 units lie on no fewer than 7 cards: 2 x 80 + 4 x 24 are 256 on six.
    assert 8 <= used <= 13
    assert f"empty, for large ones: {14 - used} of 14." in last
    assert "they need 42 cards: 28 are missing" in last


def test_readme_shows_the_real_output_of_the_demo(story: str) -> None:
    block = README.read_text().partition("<!-- demo -->\n```\n")[2].partition("```\n<!-- /demo -->")[0]
    assert block.count("\n") > 20
    assert untimed(story).startswith(untimed(block))


def untimed(text: str) -> str:
    return re.sub(r"\d+ ms", "some ms", text)


class DemoCase(NamedTuple):
    """Numbers of a newcomer's own, what must come out, and what ends the demo."""

    replicas: int
    units: int
    card_mib: int
    card_units: int
    placed: int
    late: int | None
    limit_mib: int
    stopped_by: signal.Signals


CASES = {
    # 15109 // 1024 = 14; 4 x 3 = 12, the fifth waits; one more than 2 is 3; 15109 * 3 // 14 = 3237
    "more than fit": DemoCase(5, 3, 15109, 14, 4, 3, 3237, signal.SIGINT),
    # 16 units asked of a card of 15: no pod ever fits, so there is no app to make room
    "larger than the card": DemoCase(1, 16, 16130, 15, 0, None, 0, signal.SIGTERM),
}


def flags(case: DemoCase) -> list[str]:
    return ["--replicas", str(case.replicas), "--gpu-mem", str(case.units), "--card-mib", str(case.card_mib)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_other_numbers_give_the_right_sums_and_the_right_pending_pod(
    case: DemoCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read back from the demo's API server, pod by pod, and by the auditor. Nothing is left behind."""
    with demo_kept_running(*flags(case), folder=tmp_path, stopped_by=case.stopped_by) as document:
        pods = list_objects(document["api"], "pods")
        (node,) = list_objects(document["api"], "nodes")
        assert auditor.main(["--api", document["api"]]) == 0, capsys.readouterr().out
    with pytest.raises(OSError, match="refused"):
        list_objects(document["api"], "pods")
    assert list(tmp_path.iterdir()) == []

    (card,) = json.loads(node["metadata"]["annotations"]["vrampack.dev/cards"])["cards"]
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    waiting = {pod["metadata"]["name"]: asked(pod) for pod in pods if not pod["spec"].get("nodeName")}
    records = [json.loads(pod["metadata"]["annotations"]["vrampack.dev/allocation"]) for pod in placed]
    limits = {pod["metadata"]["annotations"]["limit-mib.vrampack.dev/main"] for pod in placed}

    assert (card["units"], card["memory_mib"]) == (case.card_units, case.card_mib)
    assert [held["units"] for record in records for held in record["cards"]] == [case.units] * case.placed
    assert limits == ({str(case.limit_mib)} if case.placed else set())
    assert sum(units == case.units for name, units in waiting.items() if name != "app-late") == (
        case.replicas - case.placed
    )
    assert waiting.get("app-late") == case.late
    assert_document_says(document, pods, case)


def assert_document_says(document: Json, pods: list[Json], case: DemoCase) -> None:
    """The JSON tells the same as the API server."""
    last = document["steps"][-1]
    assert (last["usedGPU"], last["totalGPU"]) == (case.placed * case.units, case.card_units)
    names = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods}
    assert {each["pod"] for each in [*last["placed"], *last["waiting"]]} == names
    assert all(each["reason"].startswith("0/1 nodes are available: 1 ") for each in last["waiting"])


def asked(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["aliyun.com/gpu-mem"])


def test_json_output_has_every_step_and_ends(document: Json) -> None:
    told = [(step["step"], step["usedGPU"], len(step["placed"]), len(step["waiting"])) for step in document["steps"]]
    assert told == [("empty", 0, 0, 0), ("shared", 8, 2, 0), ("full", 8, 2, 1), ("freed", 8, 1, 0)]


def test_a_waiting_pod_is_placed_as_soon_as_the_app_is_deleted(document: Json) -> None:
    """Well under the second that a first back-off of the scheduler would last."""
    freed = document["steps"][-1]
    assert freed["placed"][0]["pod"] == "default/app-late"
    assert freed["tookMs"] < 500


MISUSED = {
    "no card": ["--card-mib", "1023"],
    "no pod": ["--replicas", "0"],
    "no unit": ["--gpu-mem", "0"],
    "no number": ["--gpu-mem", "4Gi"],
    "a word too many": ["now"],
}


@pytest.mark.parametrize("arguments", MISUSED.values(), ids=MISUSED)
def test_invalid_arguments_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["demo", *arguments])
    assert raised.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_the_demo_uses_the_shipped_scheduler_configuration() -> None:
    """But for the pods that name no scheduler: no admission policy runs here that would name ours."""
    shipped = SchedulerSettings.from_yaml(SHIPPED.read_text(), url_prefix="http://x")
    ours = build_scheduler_settings("http://x")
    assert ours.scheduler_names[0] in shipped.scheduler_names
    fields = ("filter_verb", "prioritize_verb", "bind_verb", "weight", "http_timeout_seconds", "managed_resources")
    assert [getattr(ours, field) for field in fields] == [getattr(shipped, field) for field in fields]


def test_the_mixed_cluster_matches_its_description() -> None:
    assert sorted({card.units for cards in objects.MIXED_NODES.values() for card in cards}) == [15, 16, 24, 80]
    assert sum(job.replicas for job in objects.MIXED_WORKLOADS) == 41


def test_an_interrupted_demo_exits_with_the_signals_code(tmp_path: Path) -> None:
    """Sent when its first step is shown: the extender runs by then, and is stopped."""
    with start_demo(folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("== One node, one card")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (143, "vrampack demo: interrupted; everything it started is stopped\n")
    assert list(tmp_path.iterdir()) == []
