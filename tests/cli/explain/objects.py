"""A small cluster for `explain`: nodes and pods as raw objects, and what the command says of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support import manifest_builders
from tests.support.node_manifests import gpu_node_manifest
from vrampack.cli.explain.main import main
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Object = dict[str, Any]  # Any: raw API objects

UNSCHEDULABLE = "0/9 nodes are available: 9 of the scheduler's own words."


def a_gpu_node(name: str, *cards: Object, cordoned: str = "", **spec: Any) -> Object:  # noqa: ANN401 - raw JSON
    """A node with our agent; one card of 15 units without `cards`."""
    annotations = {"vrampack.dev/cordoned-cards": cordoned} if cordoned else {}
    return a_node(
        name,
        manifest_builders.cards_annotation(*(cards or (manifest_builders.published_card(0),))),
        annotations=annotations,
        **spec,
    )


def a_node(
    name: str,
    cards: str | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - raw JSON
) -> Object:
    """Any node; without `cards` it has no GPU."""
    node = gpu_node_manifest(
        name, cards=None, allocatable=allocatable or {}, annotations=annotations or {}, labels=labels or {}
    )
    if cards is not None:
        try:
            node = gpu_node_manifest(
                name, cards=cards, allocatable=allocatable or {}, annotations=annotations or {}, labels=labels or {}
            )
        except ValueError:  # damaged, as the test wants it
            node["metadata"]["annotations"]["vrampack.dev/cards"] = cards  # type: ignore[index]  # built just above
    return {**node, "spec": spec}


def a_waiting_pod(
    name: str = "w",
    units: int | str = 8,
    *,
    said: str = "",
    spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    is_wired: bool = True,
    **metadata: Any,  # noqa: ANN401 - raw JSON
) -> Object:
    """A pod that is not bound, as admission leaves it; `said` is what the scheduler wrote at its last attempt."""
    pod = manifest_builders.pod_manifest(name, units, namespace="default", uid=name, **metadata)
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod["status"] = {"phase": "Pending", "conditions": [refusal] if said else [], **(status or {})}
    for container in pod["spec"]["containers"] if is_wired else ():
        container["env"] = [manifest_builders.reference_env(container["name"])]
    pod["spec"] |= spec or {}
    return {"kind": "Pod", **pod}


def a_bound_pod(
    name: str,
    node: str,
    shares: Mapping[int, int] | None = None,
    *,
    units: int = 4,
    **more: Any,  # noqa: ANN401 - passed on
) -> Object:
    """A pod on `node`; `shares` are units by card index, none without a record. Cards are named `GPU-<index>`."""
    pod = a_waiting_pod(name, sum(shares.values()) if shares else units, **more)
    pod["spec"]["nodeName"] = node
    if shares:
        cards = [{"uuid": f"GPU-{index}", "index": index, "units": held} for index, held in shares.items()]
        annotations = {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": cards})}
        pod["metadata"]["annotations"] = annotations | pod["metadata"].get("annotations", {})
    return pod


async def run_explain(folder: Path, cluster: Iterable[Object], *arguments: str) -> int:
    """The exit code of `vrampack explain` before an API server that holds these objects."""
    async with ApiServer() as api:
        for each in cluster:
            (api.restore if each["kind"] == "Pod" else api.create)(each)
        given = [*(arguments or ("pod", "w")), "--kubeconfig", str(write_kubeconfig(folder, api.url))]
        return await asyncio.to_thread(main, given)
