"""`vrampack snapshot`: everything that placement reads is in it, and no other text of the cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cli.simulate.clusters import Object, a_bound_pod, a_card, a_gpu_node, a_pod, replay, write
from vrampack.cli.main import main
from vrampack.cli.snapshot import format_snapshot
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig
from vrampack.simulator.object_files import read_objects
from vrampack.simulator.replay.anonymity import rename_objects
from vrampack.simulator.replay.trimming import SnapshotScope, trim_cluster

Said = pytest.CaptureFixture[str]

HOSTNAME = "kubernetes.io/hostname"
NODES: tuple[Object, ...] = (
    a_gpu_node("gpu-a", a_card(0), a_card(1)),
    a_gpu_node("gpu-b", a_card(0), taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
    a_gpu_node("gpu-c", a_card(0, model="A100"), cordoned="GPU-0"),
)
TOLERATION = {"key": "team", "operator": "Exists"}
PODS: tuple[Object, ...] = (
    a_bound_pod("one", "gpu-a", {0: 8}, labels={"app": "one", "aliyun.com/gpu-count": "1"}),
    a_bound_pod("two", "gpu-b", {0: 6}, spec={"tolerations": [TOLERATION]}),
    a_pod("pinned", 4, 1, spec={"nodeSelector": {HOSTNAME: "gpu-a"}}),
    a_pod("wishes", 4, 2, annotations={"vrampack.dev/card-model": "A100"}),
    a_pod("unwired", 4, 3, is_wired=False),
    {"kind": "Pod", "metadata": {"name": "cpu", "namespace": "default", "uid": "cpu"},
     "spec": {"nodeName": "gpu-a", "containers": [{"name": "c", "resources": {"requests": {"cpu": "7500m"}}}]}},
    a_pod("hungry", 1, 4, spec={"overhead": {"cpu": "6"}}),
)  # fmt: skip

SECRET = "hunter2"
UNREAD_FIELDS = (
    *("image", "command", "args", "envFrom", "volumeMounts", "lifecycle", "imagePullSecrets", "hostAliases"),
    *("managedFields", "ownerReferences", "generateName", "finalizers", "selfLink", "conditions", "message", "reason"),
    *("addresses", "nodeInfo", "images", "podIP", "hostIP", "serviceAccountName", "providerID", "podCIDR", "subdomain"),
    *("preferredDuringSchedulingIgnoredDuringExecution", "data", "stringData"),
)
QUANTITY_MAPS = ("requests", "limits", "capacity", "allocatable", "overhead")
ENTRIES = (
    {"name": "TOKEN", "value": SECRET},
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": SECRET},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": SECRET}}},
    {"name": SECRET, "valueFrom": {"fieldRef": {"fieldPath": SECRET}}},
)
LEAVES = (SECRET, {"name": SECRET}, [{"name": "x", "value": SECRET}], {SECRET: {"key": SECRET}})


def plant_secrets(value: Any, random: Random, field: str = "") -> Any:  # noqa: ANN401 - JSON
    """The object with fields that placement does not read, on every level."""
    if isinstance(value, list):
        return [plant_secrets(each, random) for each in value]
    if not isinstance(value, dict) or field in (*QUANTITY_MAPS, "nodeSelector"):
        return value
    planted = {key: plant_secrets(each, random, key) for key, each in value.items()}
    if field in ("labels", "annotations"):
        return planted | {random.choice(("note", "env", SECRET)): SECRET}
    planted |= {key: random.choice(LEAVES) for key in random.sample(UNREAD_FIELDS, 3) if key not in planted}
    if "containers" in planted:
        planted["volumes"] = [{"name": SECRET, "secret": {"secretName": SECRET}}]
    if "resources" in planted:
        planted["env"] = [*planted.get("env", ()), *random.sample(ENTRIES, random.randint(0, 3))]
    return planted


def list_names(objects: Sequence[Object]) -> list[tuple[str, str]]:
    return [(each["kind"], each["metadata"]["name"]) for each in objects]


@pytest.mark.parametrize("seed", range(20))
def test_snapshot_drops_all_text_that_placement_does_not_read(seed: int) -> None:
    random = Random(seed)
    nodes, pods = ([plant_secrets(each, random) for each in objects] for objects in (NODES, PODS))
    trimmed = trim_cluster(nodes, pods, [], SnapshotScope(label_keys=["app"])).objects
    assert SECRET not in format_snapshot(trimmed)
    assert list_names(trimmed) == list_names([*NODES, *PODS])


def test_trimmed_cluster_gives_the_same_decisions_as_the_whole_one(tmp_path: Path, capsys: Said) -> None:
    trimmed = trim_cluster(NODES, PODS, [], SnapshotScope()).objects
    asked = ("--policy", "tessellate", "--policy", "spread")
    whole = replay(capsys, write(tmp_path, [*NODES, *PODS]), *asked)
    assert replay(capsys, write(tmp_path, trimmed), *asked) == whole
    assert {each["name"]: each["reason"].partition(": ")[2] for each in whole["spread"]["unplaced"]} == {
        "default/unwired": "1 node(s) had untolerated taint(s), 2 created before the admission policy.",
        "default/wishes": "1 card model not allowed, 1 card unhealthy or cordoned, 1 node(s) had untolerated taint(s).",
        "default/hungry": "1 Insufficient cpu, 1 card unhealthy or cordoned, 1 node(s) had untolerated taint(s).",
    }


def test_labels_that_rules_name_are_kept_and_no_others() -> None:
    pod = a_bound_pod("one", "gpu-a", {0: 8}, labels={"app": "x", "team": "y"})
    namespaces = [
        {"metadata": {"name": name, "labels": {"tier": "gold", "owner": "z"}}} for name in ("default", "empty")
    ]
    scope = SnapshotScope(label_keys=["team"], namespace_label_keys=["tier"])
    _, namespace, kept = trim_cluster(NODES[:1], [pod], namespaces, scope).objects
    assert kept["metadata"]["labels"] == {"team": "y"}
    assert namespace == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"tier": "gold"}},
    }


def test_renaming_objects_changes_no_decision(tmp_path: Path, capsys: Said) -> None:
    pods = [{**each, "metadata": {**each["metadata"], "uid": f"{at}"}} for at, each in enumerate(PODS)]
    trimmed = trim_cluster(NODES, pods, [], SnapshotScope()).objects
    renamed = rename_objects(trimmed)
    text = format_snapshot(renamed)
    assert [
        name for name in ("gpu-a", "gpu-b", "gpu-c", "default", "pinned", "unwired", "hungry") if f'"{name}"' in text
    ] == []
    rows = [
        {
            name: {**row, "unplaced": [each["reason"] for each in row["unplaced"]]}
            for name, row in replay(capsys, write(tmp_path, objects)).items()
        }
        for objects in (trimmed, renamed)
    ]
    assert rows[0] == rows[1]


async def take_snapshot(folder: Path, objects: tuple[Object, ...], *arguments: str) -> int:
    async with ApiServer() as api:
        for each in objects:
            api.restore(each)
        return await asyncio.to_thread(
            main, ["snapshot", "--kubeconfig", str(write_kubeconfig(folder, api.url)), *arguments]
        )


async def test_the_command_writes_what_serve_and_replay_read(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "cluster.json"
    finished = a_bound_pod("finished", "gpu-a", {0: 1}, status={"phase": "Succeeded"})
    apart = a_pod(
        "apart", 4, spec={"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}
    )
    without_cards = {"kind": "Node", "metadata": {"name": "control"}, "status": {"allocatable": {"cpu": "4"}}}
    assert await take_snapshot(tmp_path, (*NODES, without_cards, *PODS, finished, apart), "--output", str(file)) == 0
    assert sorted(list_names(read_objects(file))) == sorted(list_names([*NODES, *PODS, apart]))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "vrampack: 1 pod has spec.affinity.podAntiAffinity: a replay places as if it were not there\n"
    assert await take_snapshot(tmp_path, (*NODES, *PODS), "--anonymous") == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["metadata"]["name"] == "node-1"


async def test_an_unknown_policy_or_unwritable_output_is_named(tmp_path: Path, capsys: Said) -> None:
    assert await take_snapshot(tmp_path, NODES, "--policy", "no-such") == 2
    assert "'no-such' is neither a file nor a policy nor a preset; policies are" in capsys.readouterr().err
    assert await take_snapshot(tmp_path, NODES, "--output", str(tmp_path / "none" / "cluster.json")) == 1
    assert "No such file or directory" in capsys.readouterr().err
