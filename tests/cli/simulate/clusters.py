"""Small clusters as snapshots, and `vrampack simulate replay` on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from extender.wire.codec import MAX_SCORE
from tests.cli.explain.objects import Object, a_bound_pod, a_gpu_node, a_waiting_pod
from tests.support.in_memory_extender import InMemoryExtender
from tests.support.manifest_builders import published_card
from vrampack.cli.main import main
from vrampack.cli.snapshot import format_snapshot

__all__ = ["Object", "a_bound_pod", "a_card", "a_gpu_node", "a_pod", "a_waiting_pod", "place_pods", "replay", "write"]


def a_card(index: int, units: int = 15, *, uuid: str = "", model: str = "T4") -> Object:
    """A card of so many units, called `GPU-<index>` on every node unless it has a uuid."""
    return published_card(index, units=units, memory_mib=units * 1024 + 512, uuid=uuid, model=model)


def a_pod(name: str, units: int, second: int = 0, **more: Any) -> Object:  # noqa: ANN401 - passed on
    """A waiting pod that was created at this second."""
    return a_waiting_pod(name, units, creationTimestamp=f"2026-01-01T00:00:{second:02}Z", **more)


def write(folder: Path, objects: Sequence[Object]) -> Path:
    """The file of a snapshot of these objects."""
    file = folder / "snapshot.json"
    file.write_text(format_snapshot(objects))
    return file


def replay(capsys: Any, file: Path, *arguments: str) -> Mapping[str, Any]:  # noqa: ANN401 - a fixture; JSON documents
    """The rows by policy."""
    assert main(["simulate", "replay", str(file), "--json", *arguments]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["policy"]: row for row in rows}


async def place_pods(nodes: Sequence[Object], pods: Sequence[Object]) -> list[Object]:
    """The pods as an extender leaves them that is called for one after the other, as a scheduler calls it."""
    extender = InMemoryExtender(nodes, pods)
    names = [str(node["metadata"]["name"]) for node in nodes]
    for pod in pods:
        args = {"Pod": pod, "NodeNames": names}
        passed = json.loads(extender.verbs.filter(json.dumps(args).encode()).body)["NodeNames"]
        if not passed:
            continue
        body = json.dumps({"Pod": pod, "NodeNames": passed}).encode()
        scores = json.loads(extender.verbs.prioritize(body).body)
        (best,) = [each["Host"] for each in scores if each["Score"] == MAX_SCORE]
        metadata = pod["metadata"]
        call = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": best,
        }
        assert not json.loads((await extender.verbs.bind(json.dumps(call).encode())).body)["Error"]
    return [{"kind": "Pod", **pod} for pod in extender.memory.pods.values()]
