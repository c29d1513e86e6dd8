"""A support bundle of a whole cluster: logs and metrics come through its API server and kubelet, and no secret with them."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.gpus import wait_until_offered
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_pod
from tests.support.processes import REPOSITORY

SECRET = "hunter2hunter2"
FOLDER = "vrampack-support"


def read_bundle(node: LiveNode, folder: Path) -> dict[str, str]:
    """The files of the one that its administrator makes."""
    archive = folder / "bundle.tar.gz"
    command = [sys.executable, "-m", "vrampack.cli", "support-bundle", "--output", str(archive)]
    kubeconfig = ["--kubeconfig", str(node.cluster.admin)]
    subprocess.run([*command, *kubeconfig], check=True, cwd=REPOSITORY, timeout=120)
    with tarfile.open(archive) as opened:
        members = {each.name.removeprefix(f"{FOLDER}/"): opened.extractfile(each) for each in opened}
        return {name: content.read().decode() for name, content in members.items() if content is not None}


def test_a_bundle_contains_every_part_and_no_secret(node: LiveNode, cards: FakeNvmlMachine, tmp_path: Path) -> None:
    wait_until_offered(node, cards.gpus)
    pod = a_pod("serves", main=4)
    pod["metadata"]["annotations"] = {"example.com/login": SECRET}
    pod["spec"]["containers"][0]["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
    node.apply(pod, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"token": SECRET}})
    node.wait(lambda: has_ready_condition(node.get("pod", "serves")), what=lambda: node.describe(""))

    files = read_bundle(node, tmp_path)

    parts = json.loads(files["manifest.json"])["parts"]
    assert [part["problem"] for part in parts if part["problem"]] == []
    logs = [content for name, content in files.items() if name.startswith("logs/")]
    assert any("bound pod=default/serves" in content for content in logs)
    metrics = [content for name, content in files.items() if name.startswith("metrics/")]
    assert any("vrampack_cache_synced 1.0" in content for content in metrics)
    assert any("vrampack_agent" in content for content in metrics)
    assert {Path(name).name for name in files if name.startswith("configuration/")} >= {"extender.yaml.json"}
    assert "serves" in files["inspect.txt"]
    assert [name for name, content in files.items() if SECRET in content] == []
