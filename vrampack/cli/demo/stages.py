"""The state of the demo's cluster, read from its API server over HTTP at every step, so that all output is observed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp

from extender.settings import load_settings
from vrampack.cards import well_known
from vrampack.cards.records import Record, read_record
from vrampack.cli.explain.main import explain_pod
from vrampack.cli.explain.text import DEFAULT_MAX_ROWS, render
from vrampack.cli.inspect.cluster import InspectedCluster, inspect_cluster
from vrampack.cli.version import VERSION
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials

Json = Mapping[str, Any]  # Any: one field of an API object, checked where it is used


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """One pod that is placed."""

    pod_name: str
    node: str
    units_by_card: Mapping[int, int]
    """Units by card index."""
    limit_mib: int
    """The MiB that its container may use."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """One pod that is not placed, and the scheduler's message about it."""

    pod_name: str
    units: int
    reason: str


@dataclass(frozen=True, slots=True)
class DemoStage:
    """The cluster at one step."""

    name: str
    cluster: InspectedCluster
    placed: tuple[PlacedPod, ...]
    pending: tuple[PendingPod, ...]
    elapsed_ms: float
    """Milliseconds from the change to the expected state."""

    @property
    def used_card_count(self) -> int:
        return sum(card.used_units > 0 for view in self.cluster.nodes for card in view.node.cards)

    @property
    def total_card_count(self) -> int:
        return sum(len(view.node.cards) for view in self.cluster.nodes)


@dataclass(frozen=True, slots=True)
class _FetchedLists:
    """Both lists, fetched: the `ListReader` of `inspect_cluster`."""

    nodes: bytes
    pods: bytes

    def read_pages(self, resource: Literal["nodes", "pods"]) -> Iterable[bytes]:
        return [self.nodes if resource == "nodes" else self.pods]


async def read_stage(name: str, url: str, *, elapsed_ms: float) -> DemoStage:
    """Read everything that the API server at `url` has now."""
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        lists = _FetchedLists(*[await _fetch(session, f"{url}/api/v1/{resource}") for resource in ("nodes", "pods")])
    pods: list[Json] = sorted(json.loads(lists.pods)["items"], key=_format_pod_name)
    return DemoStage(
        name,
        inspect_cluster(lists),
        tuple(_to_placed_pod(pod) for pod in pods if pod["spec"].get("nodeName")),
        tuple(_to_pending_pod(pod) for pod in pods if not pod["spec"].get("nodeName")),
        elapsed_ms,
    )


async def read_explanation(kubeconfig: Path, namespace: str, name: str) -> str:
    """The output of `vrampack explain` for a pod."""
    api = Api(await load_credentials(kubeconfig), user_agent=f"vrampack-demo/{VERSION}")
    try:
        return render(await explain_pod(api, load_settings(None), namespace, name), max_rows=DEFAULT_MAX_ROWS)
    finally:
        await api.close()


def find_unschedulable_message(pod: Json) -> str | None:
    """Why no node takes the pod, in the scheduler's words; None while it has not said so."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return None


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        return await answer.read()


def _format_pod_name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _to_placed_pod(pod: Json) -> PlacedPod:
    annotations = pod["metadata"].get("annotations") or {}
    record = read_record(annotations, None)
    shares = record.shares if isinstance(record, Record) else ()
    limit = annotations.get(well_known.LIMIT_MIB_PREFIX + pod["spec"]["containers"][0]["name"], "0")
    cards = {share.index: share.units for share in shares if share.index is not None}
    return PlacedPod(_format_pod_name(pod), pod["spec"]["nodeName"], cards, int(limit))


def _to_pending_pod(pod: Json) -> PendingPod:
    limits = pod["spec"]["containers"][0]["resources"].get("limits") or {}
    return PendingPod(
        _format_pod_name(pod), int(limits.get(well_known.MEMORY_RESOURCE, "0")), find_unschedulable_message(pod) or ""
    )
