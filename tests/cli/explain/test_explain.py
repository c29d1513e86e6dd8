"""`vrampack explain` as a command: which pods it explains, in which form, and with which exit code it gives up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.cli.explain.objects import Object, a_bound_pod, a_gpu_node, a_node, a_waiting_pod, run_explain
from tests.cli.explain.scenes import HOLDS_MORE, WHOLE
from tests.fakes.proxy import FaultProxy
from tests.support.manifest_builders import cards_annotation, published_card
from vrampack.cli.explain.main import build_parser, main
from vrampack.cli.explain.schema import Explanation
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

DOCS = Path(__file__).parents[3] / "docs"
SCHEMA = "schemas/explanation.v1.json"
CLUSTER = (
    a_gpu_node("gpu-1"),
    a_bound_pod("a", "gpu-1", {0: 8}),
    a_node("cpu-1"),
    a_node("gpu-2", "{"),
    a_waiting_pod(units=8, said="no"),
)

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_cluster_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user who runs the tests may have a cluster of their own."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


NAMED = {
    "namespace and name": ("pod", "default/w"),
    "name alone": ("pod", "w"),
    "flag": ("-n", "default", "pod", "w"),
    "flag after": ("pod", "w", "--namespace", "default"),
    "both and the same": ("pod", "default/w", "-n", "default"),
    "kind and name": ("pod/w",),
    "another spelling of the kind": ("po/w", "-n", "default"),
    "kind, namespace and name": ("pods/default/w",),
}


@pytest.mark.parametrize("arguments", NAMED.values(), ids=NAMED)
async def test_pod_may_be_named_in_several_forms(arguments: tuple[str, ...], tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, CLUSTER, *arguments) == 0
    assert capsys.readouterr().out.startswith("Pod default/w is pending and asks for 8 units")


async def test_pod_name_is_looked_up_in_the_given_namespace_only(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, CLUSTER, "pod", "ml/w") == 1
    assert capsys.readouterr() == ("", "vrampack: there is no pod w in namespace ml\n")


MISUSE = {
    "no kind": ("w",),
    "another kind": ("node", "gpu-1"),
    "another kind and its name": ("node/app",),
    "two names": ("pod/w", "w"),
    "no name": ("pod",),
    "too many parts": ("pod", "a/b/c"),
    "an empty part": ("pod", "/w"),
    "two namespaces": ("pod", "ml/w", "-n", "default"),
    "an unknown flag": ("pod", "w", "--nope"),
    "an unknown form": ("pod", "w", "-o", "xml"),
    "a configuration that is not there": ("pod", "w", "--config", "/nonexistent.yaml"),
}


@pytest.mark.parametrize("arguments", MISUSE.values(), ids=MISUSE)
def test_misuse_exits_2_and_prints_nothing(arguments: tuple[str, ...], capsys: Said) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert "vrampack" in said.err


@pytest.mark.parametrize(
    ("given", "hint"),
    [("app-late", "pod app-late"), ("ml/train-0", "pod ml/train-0")],
)
def test_a_name_without_its_kind_is_answered_with_the_full_command(given: str, hint: str, capsys: Said) -> None:
    with pytest.raises(SystemExit) as left:
        main([given])
    assert left.value.code == 2
    assert f"only pods and workloads can be explained; write: vrampack explain {hint}\n" in capsys.readouterr().err


async def behind(folder: Path, *, fault: Callable[[FaultProxy], object]) -> int:
    async with ApiServer() as api, FaultProxy(int(api.url.rpartition(":")[2])) as proxy:
        for each in CLUSTER:
            (api.restore if each["kind"] == "Pod" else api.create)(each)
        fault(proxy)
        kubeconfig = write_kubeconfig(folder, proxy.url)
        return await asyncio.to_thread(main, ["pod", "w", "--kubeconfig", str(kubeconfig)])


NEEDS = "explain needs get of the pod"
FAULTS: dict[str, tuple[Callable[[FaultProxy], object], str]] = {
    "not allowed to get the pod": (lambda proxy: proxy.when("GET", "/pods/w").answer(403), NEEDS),
    "not logged in": (lambda proxy: proxy.when("GET", "/nodes").answer(401), NEEDS),
    "an API server in trouble": (
        lambda proxy: proxy.when("GET", "/nodes").answer(503),
        "no answer from the API server",
    ),
    "a cut line": (lambda proxy: proxy.when("GET", "/nodes").cut(), "no answer from the API server"),
    "no list": (lambda proxy: proxy.when("GET", "/nodes").answer(200, {"items": 7}), "list nodes: not a list"),
    "no pod": (lambda proxy: proxy.when("GET", "/pods/w").answer(200, {"spec": 7}), "get pods: 200, but no Pod w"),
    "a list that expires again and again": (lambda proxy: proxy.when("GET", "/api/v1/pods").gone(), "410"),
}


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS)
async def test_a_cluster_that_cannot_be_read_exits_1(
    fault: Callable[[FaultProxy], object], text: str, tmp_path: Path, capsys: Said
) -> None:
    assert await behind(tmp_path, fault=fault) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vrampack: ")
    assert text in said.err


async def test_list_that_expires_once_is_read_again(tmp_path: Path, capsys: Said) -> None:
    assert await behind(tmp_path, fault=lambda proxy: proxy.when("GET", "/api/v1/pods").gone(times=1)) == 0
    assert "0/3 nodes fit" in capsys.readouterr().out


def test_an_api_server_that_is_not_there_exits_1(tmp_path: Path, capsys: Said) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    assert main(["pod", "w", "--kubeconfig", str(kubeconfig)]) == 1
    assert capsys.readouterr().err.startswith("vrampack: no answer from the API server: get pods: ")


def test_no_usable_kubeconfig_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["pod", "w", "--kubeconfig", "/nonexistent"]) == 1
    assert main(["pod", "w"]) == 1
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert main(["pod", "w"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "vrampack: kubeconfig /nonexistent: no such file",
        f"vrampack: kubeconfig {tmp_path}/.kube/config: no such file",
        "vrampack: service account of this pod: Service host/port is not set.; give --kubeconfig FILE outside a cluster",
    ]


async def test_the_kubeconfig_is_looked_for_as_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    (tmp_path / ".kube").mkdir()
    async with ApiServer() as api:
        api.restore(a_waiting_pod(units=0))
        written = write_kubeconfig(tmp_path, api.url)
        written.rename(tmp_path / ".kube" / "config")
        assert await asyncio.to_thread(main, ["pod", "w"]) == 0
        monkeypatch.setenv("KUBECONFIG", "/nonexistent")
        assert await asyncio.to_thread(main, ["pod", "w"]) == 1
    assert capsys.readouterr().err == "vrampack: kubeconfig /nonexistent: no such file\n"


async def test_unit_resource_and_policy_come_from_the_extender_configuration(tmp_path: Path, capsys: Said) -> None:
    config = tmp_path / "extender.yaml"
    config.write_text(
        "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nunit_mib: 512\n"
        "resources: {memory: example.com/vram, count: example.com/cards}\npolicy: {default: spread}\n"
    )
    node = a_node("old", allocatable={"example.com/vram": "30", "example.com/cards": "2"})
    pod = a_waiting_pod(units=4)
    pod["spec"]["containers"][0]["resources"]["limits"] = {"example.com/vram": "3"}
    assert await run_explain(tmp_path, (node, pod), "pod", "w", "--config", str(config)) == 0
    said = capsys.readouterr().out
    assert said.startswith("Pod default/w is pending and asks for 3 units (1536 MiB) on one card.\n")
    assert "\nPolicy spread would take old GPU0: score -0.2 = -0.2 share of card 0 in use after placing.\n" in said


MANY = (
    *(a_gpu_node(f"gpu-{at:02}", published_card(0), published_card(1)) for at in range(20)),
    *(a_bound_pod(f"a-{at:02}", f"gpu-{at:02}", {0: 14 - at % 7, 1: 15}) for at in range(20)),
)
"""Card 0 of gpu-06 and gpu-13 has 7 free, the most; card 1 is full everywhere."""


async def test_lookahead_policy_considers_the_free_cpu_of_hosts(tmp_path: Path, capsys: Said) -> None:
    """The tighter card is on a host whose CPUs a pod without cards has taken."""
    config = tmp_path / "extender.yaml"
    config.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\npolicy: {default: tessellate}\n")
    host = {"cpu": "4", "memory": "8Gi"}
    nodes = [a_node(name, cards_annotation(published_card(0)), allocatable=host) for name in ("full", "idle")]
    busy = a_waiting_pod("busy", spec={"nodeName": "full"})
    busy["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]
    waiting = a_waiting_pod("w", 4)
    waiting["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    cluster = [*nodes, busy, waiting, a_bound_pod("p", "full", {0: 4})]
    assert await run_explain(tmp_path, cluster, "pod", "w", "--config", str(config)) == 0
    assert "\nPolicy tessellate would take idle GPU0: score " in capsys.readouterr().out


async def test_the_nearest_20_cards_are_shown_unless_all_are_wanted(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (*MANY, a_waiting_pod(units=8))) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[1] == "gpu-06     0        7/15        1  not enough free memory"
    assert [row.split()[1] for row in rows[1:21]] == ["0"] * 20
    assert rows[21] == "20 more rows: --all shows them."

    assert await run_explain(tmp_path, (*MANY, a_waiting_pod(units=8)), "pod", "w", "--all") == 0
    every = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[0] for row in every[1:5]] == ["gpu-06", "gpu-06", "gpu-13", "gpu-13"]
    assert every[41] == ""


@pytest.mark.parametrize("whole_cards", ["paid", "as-requested"])
async def test_a_setting_for_whole_cards_that_was_made_is_not_called_a_guess(
    whole_cards: str, tmp_path: Path, capsys: Said
) -> None:
    config = tmp_path / "extender.yaml"
    head = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration"
    config.write_text(f"{head}\nrules: {{whole_cards: {whole_cards}}}\n")
    cluster = (a_gpu_node("gpu-1"), a_gpu_node("gpu-3"), HOLDS_MORE, a_waiting_pod(units=4, labels=WHOLE))
    assert await run_explain(tmp_path, cluster, "pod", "w", "--config", str(config)) == 0
    said = capsys.readouterr().out
    assert ("whole card asks for too little" in said) is (whole_cards == "paid")
    assert "rules.whole_cards" not in said


async def test_a_whole_card_that_is_paid_for_depends_on_no_guess(tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (a_gpu_node("gpu-1"), a_waiting_pod(units=15, labels=WHOLE))) == 0
    assert "rules.whole_cards" not in capsys.readouterr().out


async def test_explain_shows_whole_nodes_for_a_pod_that_needs_two_cards(tmp_path: Path, capsys: Said) -> None:
    pod = a_waiting_pod(units=16, labels={"aliyun.com/gpu-count": "2"})
    assert await run_explain(tmp_path, (*MANY, pod)) == 0
    rows = capsys.readouterr().out.splitlines()[3:23]
    assert [row.split()[1] for row in rows] == ["0", "1"] * 10
    assert rows[0].startswith("gpu-06  ")


PRIORITIES = {"higher": (100, "0/1 nodes fit: 1 Insufficient cpu."), "lower": (-100, "1/1 nodes fit.")}


@pytest.mark.parametrize(("priority", "verdict"), PRIORITIES.values(), ids=PRIORITIES)
async def test_the_cpu_of_a_nominated_pod_counts_as_for_the_scheduler(
    priority: int, verdict: str, tmp_path: Path, capsys: Said
) -> None:
    offered = {"cpu": "4", "memory": "64Gi", "pods": "110", "aliyun.com/gpu-mem": "15"}
    node = a_node("gpu-1", cards_annotation(published_card(0)), allocatable=offered)
    keeper = a_waiting_pod("keep", 4, status={"nominatedNodeName": "gpu-1"}, spec={"priority": priority})
    pods = (keeper, a_waiting_pod("w", 4))
    for pod, cpu in zip(pods, ("4", "2"), strict=True):
        pod["spec"]["containers"][0]["resources"].setdefault("requests", {})["cpu"] = cpu
    assert await run_explain(tmp_path, (node, *pods)) == 0
    assert verdict in capsys.readouterr().out


async def test_a_joined_row_names_only_cards_that_exist(tmp_path: Path, capsys: Said) -> None:
    node = a_gpu_node("gpu-1", *(published_card(index) for index in (0, 1, 4, 7)))
    await run_explain(tmp_path, (node, a_waiting_pod("w", 20)))
    rows = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("gpu-1 ")]
    assert rows == ["0-1", "4", "7"]


async def test_control_characters_of_the_cluster_do_not_reach_the_terminal(tmp_path: Path, capsys: Said) -> None:
    evil = a_gpu_node("gpu-1", published_card(0, model="\x1b[2J\u202e\n"))
    pod = a_waiting_pod(units=4, annotations={"vrampack.dev/card-model": "\x1b[31mA"}, said="a\x07b")
    assert await run_explain(tmp_path, (evil, pod)) == 0
    said = capsys.readouterr().out
    assert "of model ?[31mA." in said
    assert "model ?[2J?? is not allowed" in said
    assert [each for each in said if not (each.isprintable() or each == "\n")] == []


FORMS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize("form", FORMS)
async def test_json_and_yaml_carry_what_the_table_shows(form: str, tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, CLUSTER, "pod", "w", "-o", form) == 0
    said = FORMS[form](capsys.readouterr().out)
    assert list(said)[:2] == ["apiVersion", "kind"]
    assert (said["apiVersion"], said["kind"]) == ("vrampack.dev/v1", "Explanation")
    assert said["pod"]["state"] == "pending"
    assert said["request"] | {"problem": ""} == said["request"]
    assert (said["request"]["units"], said["request"]["unitMib"], said["request"]["policy"]) == (8, 1024, "tessellate")
    assert said["scheduler"] == {"reason": "Unschedulable", "message": "no"}
    assert said["reasons"] == {"no shareable GPU memory": 2, "no card with enough free memory": 1}
    assert (said["nodeCount"], said["nodesWithoutMemory"]) == (3, 1)
    nearest, damaged = said["nodes"]
    (card,) = nearest.pop("cards")
    assert nearest["reason"] == "no card with enough free memory"
    assert (card["freeUnits"], card["totalUnits"], card["missingUnits"]) == (7, 15, 1)
    assert card["pods"] == [{"namespace": "default", "name": "a", "units": 8, "unplaced": "", "bound": True}]
    assert (damaged["name"], damaged["never"], damaged["cards"]) == ("gpu-2", True, [])
    assert damaged["problem"].startswith('annotation "vrampack.dev/cards": not JSON')


KINDS: dict[str, Object] = {
    "pending": a_waiting_pod(units=8),
    "fitting": a_waiting_pod(units=7),
    "bound": a_bound_pod("w", "gpu-1", {0: 4}, annotations={"limit-mib.vrampack.dev/main": "4301"}),
    "asks nothing": a_waiting_pod(units=0),
}


@pytest.mark.parametrize("pod", KINDS.values(), ids=KINDS)
async def test_every_json_output_parses_by_the_schema(pod: Object, tmp_path: Path, capsys: Said) -> None:
    assert await run_explain(tmp_path, (*CLUSTER[:-1], pod), "pod", "w", "-o", "json") == 0
    said = capsys.readouterr().out
    read = msgspec.json.decode(said, type=Explanation, strict=True)
    assert json.loads(msgspec.json.encode(read)) == json.loads(said)


def test_published_schema_matches_the_code() -> None:
    """`python -m tests.cli.explain.test_explain` writes it again."""
    assert json.loads((DOCS / SCHEMA).read_text()) == the_schema()


def test_every_flag_state_and_action_is_documented() -> None:
    text = (DOCS / "explain.md").read_text()
    flags = {flag for action in build_parser()._actions for flag in action.option_strings if flag.startswith("--")}
    states = the_schema()["$defs"]["PodView"]["properties"]["state"]["enum"]
    kinds = the_schema()["$defs"]["ActionView"]["properties"]["kind"]["enum"]
    assert [kind for kind in kinds if f"\n| `{kind}` |" not in text] == []
    assert [
        word for word in (*(flags - {"--help"}), *states, SCHEMA) if f"`{word}" not in text and word not in text
    ] == []


def the_schema() -> Any:  # noqa: ANN401 - a JSON document
    made = msgspec.json.schema(Explanation)
    title = "What `vrampack explain pod -o json` prints"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.loads(json.dumps(head | made))


if __name__ == "__main__":
    (DOCS / SCHEMA).write_text(json.dumps(the_schema(), indent=2) + "\n")
