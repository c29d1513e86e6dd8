"""A live cluster written down by `vrampack snapshot` and replayed: by its real API server, scheduler and extender."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.processes import REPOSITORY

Start = Callable[..., Any]
POLICY = """\
apiVersion: vrampack.dev/v1
kind: PlacementPolicy
policy: {default: binpack}
rules:
  reserve: [{model: Tesla V100-SXM2-16GB, cards: 3, users: {namespace_labels: {tier: gold}}}]
"""
"""Every card, for namespaces of this label."""


def run_vrampack(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "vrampack.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_live_cluster_is_written_down_and_replayed(
    cluster: ControlPlane, extender: Start, scheduler: Start, tmp_path: Path
) -> None:
    """Pods of two namespaces on three cards of 15. Under the same policy they find the same cards; under a rule only some may."""
    cluster.add_node("gpu-1", cards=cards_annotation(published_card(0, uuid="GPU-a"), published_card(1, uuid="GPU-b")))
    cluster.add_node("gpu-2", cards=cards_annotation(published_card(0, uuid="GPU-c")))
    extender()
    scheduler()
    gold, plain = cluster.namespace("gold", labels={"tier": "gold"}), cluster.namespace("plain")
    for at, (namespace, units) in enumerate([(gold, 8), (plain, 6), (gold, 5), (plain, 14)]):
        pod = pod_manifest(f"app-{at}", units)
        pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "hunter2"}]
        pods = f"/api/v1/namespaces/{namespace}/pods"
        cluster.request_ok("POST", pods, pod)

        def read_node_name(path: str = f"{pods}/app-{at}") -> str:
            return str(cluster.request_ok("GET", path)["spec"].get("nodeName", ""))

        cluster.wait_until(read_node_name, what=f"app-{at} bound")

    policy, kubeconfig, file = (
        tmp_path / "policy.yaml",
        cluster.admin_kubeconfig,
        tmp_path / "cluster.json",
    )
    policy.write_text(POLICY)
    assert run_vrampack("snapshot", "--policy", policy, "--output", file, "--kubeconfig", kubeconfig) == ""

    text = file.read_text()
    assert "hunter2" not in text
    written = {each["metadata"]["name"]: each for each in json.loads(text)["items"] if each["kind"] == "Pod"}
    live = [
        pod for name in (gold, plain) for pod in cluster.request_ok("GET", f"/api/v1/namespaces/{name}/pods")["items"]
    ]
    assert {name: read_allocation_record(pod) for name, pod in written.items()} == {
        pod["metadata"]["name"]: read_allocation_record(pod) for pod in live
    }
    shown = run_vrampack("simulate", "replay", file, "--json", "--policy", "tessellate", "--policy", policy)
    as_it_is, same, ruled = map(json.loads, shown.splitlines())
    assert as_it_is | {"policy": "tessellate"} == same
    assert (same["placed"], same["placed_units"], same["cards_in_use"]) == (4, 33, 3)
    assert (ruled["placed"], ruled["placed_units"]) == (2, 13)
    assert {each["reason"] for each in ruled["unplaced"]} == {"0/2 nodes are available: 2 card reserved by a rule."}
