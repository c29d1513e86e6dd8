"""The recorded requests, and the cluster they were recorded in."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

Object = dict[str, Any]  # Any: raw API objects

FOLDER = Path(__file__).parents[1] / "wire" / "recorded"
NODES = "filter.ncc-false_ignoredByScheduler-false.json"
VICTIMS = "preempt.ncc-false_ignoredByScheduler-false.json"


def recording_names(verb: str, *, with_node_names: bool | None = None) -> list[str]:
    """The recordings of one verb; of those with node names, or of those with whole Node objects."""
    found = sorted(path.name for path in FOLDER.glob(f"{verb}.*.json") if ".headers." not in path.name)
    return [
        name
        for name in found
        if with_node_names is None or (json.loads(read_recording(name)).get("NodeNames") is not None) is with_node_names
    ]


def read_recording(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def read_headers(name: str) -> list[tuple[bytes, bytes]]:
    """As recorded, in their order, except for the length, which the caller sets."""
    recorded = json.loads((FOLDER / name.replace(".json", ".headers.json")).read_bytes())["headers"]
    return [(key.lower().encode(), value.encode()) for key, value in recorded if key != "Content-Length"]


def recorded_nodes() -> list[Object]:
    """Two legacy nodes of one card with 15 units."""
    found: list[Object] = json.loads(read_recording(NODES))["Nodes"]["items"]
    return found


def recorded_pods() -> list[Object]:
    """Bound, live and without a record: 11 and 4 units on gpu-node-0, 15 on gpu-node-1."""
    victims = json.loads(read_recording(VICTIMS))["NodeNameToVictims"]
    return [copy.deepcopy(pod) for on_node in victims.values() for pod in on_node["Pods"]]


def recorded_pod(name: str) -> Object:
    """The pod of a recorded filter or prioritize call."""
    found: Object = json.loads(read_recording(name))["Pod"]
    return found
