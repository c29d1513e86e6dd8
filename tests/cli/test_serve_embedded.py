"""`vrampack serve --embedded FILE`: the real program on the objects of a file, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import recorded_requests
from tests.support.extender_process import run_embedded_extender
from vrampack.cli.main import main

PREFIX = "/gpushare-scheduler"
FILTER = json.loads(recorded_requests.read_recording("filter.ncc-true_ignoredByScheduler-true.json"))


def as_kubectl_writes(folder: Path) -> Path:
    """The recorded nodes, the pod that holds 11 units of gpu-node-0, and a namespace, as a snapshot may have."""
    filler = next(pod for pod in recorded_requests.recorded_pods() if pod["metadata"]["name"] == "filler-0")
    items = [{"apiVersion": "v1", "kind": "Node", **node} for node in recorded_requests.recorded_nodes()]
    items.append({"apiVersion": "v1", "kind": "Pod", **filler})
    items.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"tier": "gold"}}})
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


async def test_serve_embedded_answers_as_on_a_real_cluster_with_these_objects(tmp_path: Path) -> None:
    """11 of 15 units are held on gpu-node-0: 4 fit there, tightly."""
    async with run_embedded_extender(as_kubectl_writes(tmp_path)) as service:
        await service.wait_until_ready()
        _, text = await service.get(f"{service.verbs}{PREFIX}/inspect/gpu-node-0")
        (node,) = json.loads(text)["nodes"]
        assert (node["usedGPU"], node["totalGPU"]) == (11, 15)
        scores = json.loads((await service.post(f"{PREFIX}/prioritize", FILTER))[1])
        assert max(scores, key=lambda each: int(each["Score"]))["Host"] == "gpu-node-0"


def test_an_unusable_cluster_file_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text("kind: Service\nmetadata: {name: s}\n")
    assert main(["serve", "--embedded", str(path)]) == 2
    assert f"vrampack: {path}: document [0].kind: 'Service'" in capsys.readouterr().err


def test_serve_imports_neither_the_simulator_nor_the_threaded_client() -> None:
    """An import contract cannot say this: it counts imports inside functions, too."""
    spared = "'.simulator' in name or name in ('requests', 'oauthlib', 'websocket')"
    loaded = f"import sys, vrampack.cli.serve; print([name for name in sys.modules if {spared}])"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True, text=True).stdout == "[]\n"
