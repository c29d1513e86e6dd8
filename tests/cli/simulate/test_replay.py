"""`vrampack simulate replay`: the pods of a snapshot placed again, with figures that can be added up by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.settings import load_settings
from tests.cli.simulate.clusters import Object, a_bound_pod, a_card, a_gpu_node, a_pod, place_pods, replay, write
from vrampack.cards import well_known
from vrampack.cards.pod import Pod
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.cli.main import main
from vrampack.cli.named_policy import load_named_policy
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig
from vrampack.simulator.object_files import read_objects
from vrampack.simulator.replay.cluster_snapshot import read_cluster_snapshot
from vrampack.simulator.replay.node_changes import ChangedNodes
from vrampack.simulator.replay.replay import MixKnowledge, build_plan, replay_arrivals
from vrampack.simulator.replay.replayed_cluster import ReplayedCluster

Said = pytest.CaptureFixture[str]
POLICY_HEAD = "apiVersion: vrampack.dev/v1\nkind: PlacementPolicy\n"

TWO_NODES = (a_gpu_node("gpu-1", a_card(0), a_card(1)), a_gpu_node("gpu-2", a_card(0)))
SPREAD_OUT = (
    *TWO_NODES,
    a_bound_pod("a", "gpu-1", {0: 8}, creationTimestamp="2026-01-01T00:00:01Z"),
    a_bound_pod("b", "gpu-1", {1: 6}, creationTimestamp="2026-01-01T00:00:02Z"),
    a_bound_pod("c", "gpu-2", {0: 5}, creationTimestamp="2026-01-01T00:00:03Z"),
    a_pod("w", 14, 4),
)
"""Units 8, 6 and 5 on three cards of 15, and 14 wait."""


def select_figures(row: dict[str, Any]) -> tuple[Any, ...]:
    names = (
        "placed",
        "pods",
        "placed_units",
        "cards_in_use",
        "empty_cards",
        "density",
        "stranded_units",
        "repack_ratio",
    )
    return tuple(row[name] for name in names)


def read_placement(pod: Object) -> tuple[str, list[tuple[int, int]]]:
    record = json.loads(pod["metadata"].get("annotations", {}).get(well_known.ALLOCATION, '{"cards": []}'))
    return pod["spec"].get("nodeName", ""), sorted((card["index"], card["units"]) for card in record["cards"])


@pytest.mark.parametrize("seed", range(3))
async def test_pods_that_binpack_placed_are_placed_alike(seed: int, tmp_path: Path) -> None:
    """30 pods of all kinds one after the other through filter, prioritize and bind, some refused: the replay repeats them."""
    random = Random(seed)
    cards = {
        f"gpu-{at}": [a_card(index, random.choice([15, 24, 40])) for index in range(random.randint(1, 3))]
        for at in range(5)
    }
    for name, published in cards.items():
        for card in published:
            card["uuid"] = f"{name}-{card['uuid']}"
    nodes = [a_gpu_node(name, *published) for name, published in cards.items()]
    pods = []
    for at in range(30):
        labels = random.choice(
            [{}, {}, {well_known.COUNT_LABEL: "2"}, {well_known.PLACEMENT_LABEL: well_known.WHOLE_DEVICE}]
        )
        pods.append(a_pod(f"p{at:02}", 2 * random.randint(1, 9), at, labels=labels))
    placed = await place_pods(nodes, pods)
    want = {pod["metadata"]["name"]: read_placement(pod) for pod in placed}
    assert 0 < sum(not name for name, _ in want.values()) < 30

    settings = load_named_policy("binpack", load_settings(None)).settings
    snapshot = read_cluster_snapshot(read_objects(write(tmp_path, [*nodes, *placed])))
    cluster = ReplayedCluster(snapshot, settings)
    plan = build_plan(snapshot, ChangedNodes(snapshot.nodes, frozenset()), keeps_bound=False)
    for arrival in plan.arrivals:
        cluster.place_pod(arrival.pod, cluster.read_pod(arrival.pod))
    found = {name: ("", list[tuple[int, int]]()) for name in want}
    for node in cluster.ledger.list_node_names():
        for hold in cluster.ledger.list_holds(node):
            found[hold.pod.name] = node, sorted((index, units) for index, units in hold.units.items() if units)
    assert found == want


CHANGES = {
    # binpack from empty: a 8 and b 6 on gpu-1 GPU0 (14 of 15), c 5 on the next card, w 14 on the last: 33 of 45.
    # 1 is free beside a and b and 1 beside w, both less than the median request of 6; 10 beside c are not.
    "nothing": ((), (4, 4, 33, 3, 0, 73.333, 2, 1.0)),
    # Two more cards, empty: repacked on 15s the three open cards are all that is needed.
    "two added": (("--add-nodes", "gpu-2=2"), (4, 4, 33, 3, 2, 73.333, 2, 1.0)),
    # Two cards of 15 are left: 14 on one, 5 on the other, and w finds 1 and 10 free. Stranded is that 1.
    "one removed": (("--remove-nodes", "gpu-2"), (3, 4, 19, 2, 0, 63.333, 1, 1.0)),
    # The card of gpu-2 has 40: the tightest come first, so a, b and c are on 15s as before, and w is alone on 40: 33 of 70.
    # A repack opens the same: w on 15, a and b on 15, and the 40 for c.
    "a larger card": (("--model", "gpu-2=A100:40"), (4, 4, 33, 3, 0, 47.143, 1, 1.0)),
    # 20 on both cards of gpu-1: 8 + 6 + 5 = 19 on one, w 14 on gpu-2's 15. 1 free on each.
    "of both cards": (("--model", "gpu-1=A100:20"), (4, 4, 33, 2, 1, 94.286, 2, 1.0)),
    # Kept where they are, 7, 9 and 10 are free: w does not fit. None of these is less than 6.
    "kept": (("--keep",), (3, 4, 19, 3, 0, 42.222, 0, 1.5)),
    # gpu-2 is drained: c goes beside a (2 left of 15), w fits nowhere.
    "kept and drained": (("--keep", "--remove-nodes", "gpu-*2"), (3, 4, 19, 2, 0, 63.333, 2, 1.0)),
    # An exchanged card is drained too: c goes beside a, w onto the new card. 2 are free beside a and c.
    "kept and exchanged": (("--keep", "--model", "gpu-2=A100:40"), (4, 4, 33, 3, 0, 47.143, 2, 1.0)),
}


@pytest.mark.parametrize(("flags", "want"), CHANGES.values(), ids=CHANGES)
def test_changed_nodes_give_the_expected_figures(
    flags: Sequence[str], want: tuple[float, ...], tmp_path: Path, capsys: Said
) -> None:
    row = replay(capsys, write(tmp_path, SPREAD_OUT), "--policy", "binpack", *flags)["binpack"]
    assert select_figures(row) == pytest.approx(want, abs=0.001)


def test_the_current_cluster_is_the_first_row(tmp_path: Path, capsys: Said) -> None:
    file = write(tmp_path, SPREAD_OUT)
    rows = replay(capsys, file, "--policy", "binpack", "--policy", "spread", "--remove-nodes", "gpu-2")
    assert list(rows) == ["as it is", "binpack", "spread"]
    # 8 + 6 + 5 of 45; they would fit on two cards of 15.
    assert select_figures(rows["as it is"]) == pytest.approx((3, 4, 19, 3, 0, 42.222, 0, 1.5), abs=0.001)
    assert rows["binpack"]["unplaced"] == [
        {"name": "default/w", "reason": "0/1 nodes are available: 1 no card with enough free memory."}
    ]


def test_the_rules_and_profiles_of_a_file_are_in_force(tmp_path: Path, capsys: Said) -> None:
    """One pod a card: three of four find one. By its profile b has a card alone, and the others are packed."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(POLICY_HEAD + "policy: {default: binpack}\nrules: {max_pods_per_card: 1}\n")
    profile = tmp_path / "extender.yaml"
    profile.write_text(
        "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\npolicy: {default: binpack}\n"
        "profiles: [{name: apart, policy: spread, users: {labels: {app: b}}}]\n"
    )
    file = write(tmp_path, [*SPREAD_OUT[:-1], a_pod("small", 1, 4)])
    ruled = replay(capsys, file, "--policy", str(rules))[str(rules)]
    assert (ruled["placed"], ruled["cards_in_use"]) == (3, 3)
    (refused,) = ruled["unplaced"]
    assert refused["reason"] == "0/2 nodes are available: 2 card has as many pods as a rule allows."

    labelled = a_bound_pod("b", "gpu-1", {1: 6}, labels={"app": "b"}, creationTimestamp="2026-01-01T00:00:02Z")
    file = write(tmp_path, [labelled if each["metadata"]["name"] == "b" else each for each in SPREAD_OUT])
    # a 8 and c 5 share a card: 2 are free there, fewer than the median of 6.
    assert replay(capsys, file, "--policy", str(profile))[str(profile)]["stranded_units"] == 3


def test_refusals_of_the_scheduler_itself_keep_its_wording(tmp_path: Path, capsys: Said) -> None:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu-3"]}]}]}}  # fmt: skip
    objects = [
        a_gpu_node("gpu-1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        a_gpu_node("gpu-2", unschedulable=True),
        a_gpu_node("gpu-3"),
        a_pod("fills", 15, 1, spec={"affinity": {"nodeAffinity": affinity}}),
        a_pod("elsewhere", 1, 2, spec={"nodeSelector": {"kubernetes.io/hostname": "gpu-9"}}),
        a_pod("too-late", 1, 3),
    ]
    (row,) = [row for name, row in replay(capsys, write(tmp_path, objects)).items() if name != "as it is"]
    assert {each["name"]: each["reason"] for each in row["unplaced"]} == {
        "default/elsewhere": "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
        "default/too-late": "0/3 nodes are available: 1 no card with enough free memory, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
    }


def test_pods_of_an_arrivals_file_leave_after_their_lifetime(tmp_path: Path, capsys: Said) -> None:
    """On one card of 15: 10 from 0 to 2, so 10 at 1 finds none and 10 at 2 does. Half a GiB is a unit."""
    file = write(tmp_path, [a_gpu_node("gpu-1", a_card(0))])
    arrivals = tmp_path / "arrivals.csv"
    arrivals.write_text("pod,arrival,lifetime,gpu_mem_gib\nlast,2,5,10\nfirst,0,2,10\nmiddle,1,1,9.5\nsmall,3,1,0.5\n")
    row = replay(capsys, file, "--arrivals", str(arrivals), "--policy", "binpack")["binpack"]
    assert (row["placed"], row["pods"], row["asked_units"], row["placed_units"]) == (3, 4, 31, 21)
    assert [each["name"] for each in row["unplaced"]] == ["arrivals/middle"]
    # Means over the second half: 10 and then 11 of 15.
    assert row["density"] == pytest.approx(70.0)


@pytest.mark.parametrize(("mix", "want"), [("given", [True] * 40), ("learned", [False] * 31 + [True] * 9)])
def test_lookahead_policies_know_the_pod_mix_or_learn_it(mix: MixKnowledge, want: list[bool]) -> None:
    """From 32 pods on an extender ranks by what is asked for: at the start, or from the 32nd arrival on."""
    nodes, pods = (
        [a_gpu_node(f"gpu-{at}", a_card(0)) for at in range(9)],
        [a_pod(f"p{at:02}", 3, at) for at in range(40)],
    )
    snapshot, known = read_cluster_snapshot([*nodes, *pods]), list[bool]()

    def watch_decision(cluster: ReplayedCluster, _item: Object, _pod: Pod) -> None:
        known.append(bool(cluster.engine.get_outlook(TunedPolicy("tessellate"), None).forecast.mix.weights))

    plan = build_plan(snapshot, ChangedNodes(snapshot.nodes, frozenset()), keeps_bound=False, mix=mix)
    replay_arrivals(plan, load_settings(None), watch_decision)
    assert known == want


async def test_replay_explains_a_decision_as_on_a_live_cluster(tmp_path: Path, capsys: Said) -> None:
    """What `vrampack policy explain` says of the cluster in which the pod waits, the replay says when its turn comes."""
    objects = SPREAD_OUT
    row = replay(capsys, write(tmp_path, objects), "--keep", "--policy", "tessellate", "--explain", "w")["tessellate"]
    async with ApiServer() as api:
        for each in objects:
            api.restore(each)
        kubeconfig = str(write_kubeconfig(tmp_path, api.url))
        asked = ["policy", "explain", "--pod", "w", "-o", "json", "--kubeconfig", kubeconfig]
        assert await asyncio.to_thread(main, asked) == 0
    live = json.loads(capsys.readouterr().out)
    assert row["explanation"]["nodes"] == live["nodes"]
    assert main(["simulate", "replay", str(tmp_path / "snapshot.json"), "--policy", "binpack", "--explain", "w"]) == 0
    shown = capsys.readouterr().out
    assert "RANK  NODE   SCORE  TERMS\n   1  gpu-2    -15  -15 free on card 0\n" in shown


def test_the_report_has_the_table_and_a_curve(tmp_path: Path, capsys: Said) -> None:
    page = tmp_path / "out.html"
    assert (
        main(["simulate", "replay", str(write(tmp_path, SPREAD_OUT)), "--policy", "binpack", "--report", str(page)])
        == 0
    )
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["POLICY", "PLACED", "UNITS", "CARDS", "EMPTY", "DENSITY", "STRANDED", "REPACK"]
    assert rows[1].split() == ["binpack", "4/4", "33/33", "3/3", "0", "73.3%", "2", "1.00"]
    assert "<td>binpack</td>" in page.read_text()
    assert "polyline" in page.read_text()


HEADING = "pod,arrival,lifetime,gpu_mem_gib\n"
MISUSES = {
    "a policy that is none": (["--policy", "tesselate"], "'tesselate' is neither a file nor a policy nor a preset; policies are "),
    "a node that is not there": (["--add-nodes", "gpu-9=1"], "--add-nodes: there is no node gpu-9; the snapshot has gpu-1, gpu-2"),
    "a pattern of no node": (["--remove-nodes", "old-*"], "--remove-nodes: no node is called old-*; the snapshot has gpu-1"),
    "copies without a number": (["--add-nodes", "gpu-1"], "--add-nodes: found 'gpu-1'; give a node and a number"),
    "no card": (["--model", "gpu-1=A100"], "--model: found 'gpu-1=A100'; give nodes, model and units"),
    "an unknown pod": (["--explain", "x"], "--explain: pod default/x is not among those that are placed"),
    "a kept pod": (["--keep", "--explain", "a"], "--explain: pod default/a is not among those that are placed"),
    "a column is missing": (["--arrivals", "pod,arrival\n"], "csv:1: column lifetime is missing"),
    "no number": (["--arrivals", HEADING + "a,1,1,4\nb,x,1,4\n"], "csv:3: arrival: found 'x'; give a number from 0 up"),
    "nothing asked": (["--arrivals", HEADING + "a,1,1,0\n"], "csv:2: gpu_mem_gib: found 0; give a number above 0"),
    "one pod twice": (["--arrivals", HEADING + "a,1,1,1\na,2,1,1\n"], "csv: pod a appears twice"),
    "no such file": (["--arrivals", "none.csv"], "none.csv: No such file or directory"),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "said"), MISUSES.values(), ids=MISUSES)
def test_misuse_is_named_with_the_fix(flags: list[str], said: str, tmp_path: Path, capsys: Said) -> None:
    if "\n" in flags[-1]:
        arrivals = tmp_path / "arrivals.csv"
        arrivals.write_text(flags[-1])
        flags = ["--arrivals", str(arrivals)]
    try:
        code = main(["simulate", "replay", str(write(tmp_path, SPREAD_OUT)), *flags])
    except SystemExit as ended:  # argparse's own
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_legacy_node_has_no_cards_to_exchange(tmp_path: Path, capsys: Said) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "old"},
        "status": {"allocatable": {"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"}},
    }
    assert main(["simulate", "replay", str(write(tmp_path, [node])), "--model", "old=T4:15"]) == 2
    assert (
        '--model: the cards of node old are not known: it has no annotation "vrampack.dev/cards"'
        in capsys.readouterr().err
    )


def test_a_label_that_the_snapshot_lacks_is_named(tmp_path: Path, capsys: Said) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(POLICY_HEAD + "rules: {share_with: 'same-label:team'}\n")
    assert main(["simulate", "replay", str(write(tmp_path, SPREAD_OUT)), "--policy", str(rules)]) == 0
    assert "selects by the label team, and no pod of the snapshot has it" in capsys.readouterr().err
