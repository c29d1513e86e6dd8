"""Nodes, pods and watch events as an API server sends them, built once, before anything is measured.

Pods have the shape that a real scheduler sent (`tests/wire/recorded`) and are padded with `managedFields`, as real pods are. Nodes
have eight cards of 80 units. On a full node no card has more than `FULL_NODE_FREE_UNITS` units free, on any other node every
card has at least `MAX_ASKED_UNITS`: a pod that requests an amount between the two fits exactly on the nodes that are not full.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from tests.support import recorded_requests

Object = dict[str, Any]  # Any: raw API objects

CARDS = 8
CARD_UNITS = 80
FULL_NODE_FREE_UNITS = 4
MAX_ASKED_UNITS = 48
POD_BYTES = 4500
NODE_BYTES = 6000
"""Guessed: labels, conditions, some images. Most of the bytes that a start reads are pods anyway."""
PAGE_SIZE = 500
CROWD = 20
"""Our pods on a crowded node."""
RESOURCE = "aliyun.com/gpu-mem"
CONTAINER_NAME = "c"
RECORDED_FILTER_CALL = "filter.ncc-true.scheduler-1.36.3.json"
_CREATED = "2026-01-01T00:00:00Z"

encode_json = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class BenchmarkCluster:
    """The sizes of a cluster; the same sizes and seed give the same bytes."""

    nodes: int
    pods: int
    """Our bound pods, seven of eight on full nodes."""
    others: int = 0
    """Bound pods that ask for no card, spread among ours."""
    pending: int = 0
    """Our waiting pods, numbered from 0 (`build_pending_pod`)."""
    full_share: float = 0.5
    crowded: int = 0
    """How many of the full nodes are crowded: the first ones, with `CROWD` pods each, whatever `pods` is."""
    seed: int = 1

    def list_node_names(self) -> list[str]:
        return [format_node_name(at) for at in range(self.nodes)]

    def list_crowded_nodes(self) -> list[int]:
        return list(itertools.islice(filter(self.is_full, range(self.nodes)), self.crowded))

    def is_full(self, node_index: int) -> bool:
        return node_index % 10 < self.full_share * 10

    def encode_node_pages(self) -> list[bytes]:
        return _encode_pages("Node", [build_node(at) for at in range(self.nodes)])

    def encode_pod_pages(self) -> list[bytes]:
        ours = [pod for at in range(self.nodes) for pod in self.build_node_pods(at)]
        others = [build_other_pod(number, number % self.nodes) for number in range(self.others)]
        found = [*ours, *others, *map(build_pending_pod, range(self.pending))]
        random.Random(self.seed).shuffle(found)
        return _encode_pages("Pod", found)

    def build_node_pods(self, node_index: int) -> Iterator[Object]:
        """Our pods on a node. On a full node they cover all cards; on another they leave most of each card free."""
        is_full = self.is_full(node_index)
        count = self._count_pods(node_index)
        chance = random.Random(f"{self.seed} {node_index}")
        held = [self._draw_held_units(chance, is_full=is_full) for _ in range(CARDS)]
        for number in range(count):
            card = number % CARDS
            sharing = len(range(card, count, CARDS))
            units = held[card] // sharing + (number // CARDS < held[card] % sharing)
            cards = list(range(card, CARDS, count)) if is_full else [card]
            yield build_bound_pod(f"pod-{node_index}-{number}", node_index, cards, max(1, units))

    def _count_pods(self, node_index: int) -> int:
        """Seven of eight pods are on full nodes."""
        is_full, in_ten = self.is_full(node_index), sum(map(self.is_full, range(10)))
        full = self.nodes // 10 * in_ten + min(self.nodes % 10, in_ten)
        on_full = self.pods if full == self.nodes else self.pods * 7 // 8
        alike, pods = (full, on_full) if is_full else (self.nodes - full, self.pods - on_full)
        rank = (
            node_index // 10 * in_ten + node_index % 10
            if is_full
            else node_index // 10 * (10 - in_ten) + node_index % 10 - in_ten
        )
        if is_full and rank < self.crowded:
            return CROWD
        return pods // alike + (rank < pods % alike)

    def _draw_held_units(self, chance: random.Random, *, is_full: bool) -> int:
        return CARD_UNITS - chance.randint(
            *((0, FULL_NODE_FREE_UNITS) if is_full else (MAX_ASKED_UNITS + 2, CARD_UNITS - CARDS))
        )


def format_node_name(node_index: int) -> str:
    return f"gpu-pool-node-{node_index:05d}"


def build_node(node_index: int) -> Object:
    """A node whose agent publishes eight cards."""
    card = {"model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81_559, "units": CARD_UNITS, "healthy": True, "numa": 0}
    cards = [
        {"uuid": build_card_uuid(node_index, index), "index": index, **card, "mig_parent": None}
        for index in range(CARDS)
    ]
    published = {"v": 1, "unit_mib": 1024, "injection": "exact", "devices": "uuid", "cards": cards}
    recorded = recorded_requests.recorded_nodes()[0]
    metadata = {
        **recorded["metadata"],
        "name": format_node_name(node_index),
        "uid": f"00000000-0000-4000-8000-{node_index:012d}",
        "labels": {
            "kubernetes.io/hostname": format_node_name(node_index),
            "node.kubernetes.io/instance-type": "gpu-8x80",
        },
        "annotations": {"vrampack.dev/cards": json.dumps(published, separators=(",", ":"))},
    }
    total = {"cpu": "128", "memory": "1Ti", "pods": "110", RESOURCE: str(CARDS * CARD_UNITS)}
    status = {**recorded["status"], "capacity": total, "allocatable": total}
    return _fill_with_managed_fields({"metadata": metadata, "spec": {}, "status": status}, NODE_BYTES)


def build_bound_pod(name: str, node: int, cards: Sequence[int], units: int) -> Object:
    """A running pod that holds `units` on each of these cards, with every record that a Binding writes."""
    pod = build_requesting_pod(name, units * len(cards), count=len(cards))
    held = {"units": units, "of": CARD_UNITS, "whole": False}
    shares = [{"uuid": build_card_uuid(node, card), "index": card, **held} for card in cards]
    limits = [{"uuid": build_card_uuid(node, card), "units": units, "mib": units * 1019} for card in cards]
    allocation = {"v": 1, "cards": shares, "containers": {CONTAINER_NAME: limits}}
    pod["metadata"]["annotations"] = {
        "vrampack.dev/allocation": json.dumps(allocation, separators=(",", ":")),
        f"visible-devices.vrampack.dev/{CONTAINER_NAME}": ",".join(build_card_uuid(node, card) for card in cards),
        f"limit-mib.vrampack.dev/{CONTAINER_NAME}": str(units * 1019),
        "scheduler.framework.gpushare.allocation": json.dumps({"0": {str(card): units for card in cards}}),
        "ALIYUN_COM_GPU_MEM_POD": str(units * len(cards)),
        "ALIYUN_COM_GPU_MEM_DEV": str(CARD_UNITS),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1767225600000000000",
    } | ({"ALIYUN_COM_GPU_MEM_IDX": str(cards[0])} if len(cards) == 1 else {})
    pod["spec"]["nodeName"] = format_node_name(node)
    pod["status"] = {"phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": "10.1.0.1"}
    return _fill_with_managed_fields(pod, POD_BYTES)


def build_other_pod(number: int, node: int) -> Object:
    """A running pod that asks for no card."""
    pod = build_requesting_pod(f"other-{number}", 0)
    pod["spec"]["nodeName"] = format_node_name(node)
    pod["status"] = {"phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": "10.1.0.1"}
    return _fill_with_managed_fields(pod, POD_BYTES)


def build_pending_pod(number: int) -> Object:
    """A waiting pod of ours that fits on every node that is not full."""
    return _fill_with_managed_fields(build_requesting_pod(f"pending-{number}", 8), POD_BYTES)


def build_requesting_pod(name: str, units: int, *, count: int = 1) -> Object:
    """A pod as a scheduler sends it in a verb, as admission leaves it; 0 units: it asks for no card memory."""
    recorded = msgspec.json.decode(_read_recorded_pod())
    metadata, spec = recorded["metadata"], recorded["spec"]
    metadata |= {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": _CREATED}
    container = spec["containers"][0]
    asked = {"cpu": "100m"} | ({RESOURCE: str(units)} if units else {})
    container["resources"] = {"limits": asked, "requests": asked}
    if units:
        path = f"metadata.annotations['visible-devices.vrampack.dev/{container['name']}']"
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source}]
    if count > 1:
        metadata["labels"]["aliyun.com/gpu-count"] = str(count)
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "qosClass": "Burstable"}}


def encode_event(kind: str, obj: Object, version: int) -> bytes:
    """One line of a watch."""
    changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
    return encode_json({"type": kind, "object": changed}) + b"\n"


@cache
def _read_recorded_pod() -> bytes:
    """The pod of a real filter call as bytes, so that decoding it makes a copy."""
    return encode_json(recorded_requests.recorded_pod(RECORDED_FILTER_CALL))


def build_card_uuid(node: int, card: int) -> str:
    return f"GPU-{node:08x}-0000-4000-8000-{card:012x}"


def _fill_with_managed_fields(obj: Object, size: int) -> Object:
    """Add `managedFields`, small keys that a reader must skip, to make the object about `size` bytes."""
    obj["metadata"].pop("managedFields", None)
    missing = size - len(
        encode_json({**obj, "metadata": {**obj["metadata"], "managedFields": _encode_managed_fields(0)}})
    )
    return {
        **obj,
        "metadata": {
            **obj["metadata"],
            "managedFields": _encode_managed_fields(max(0, missing) // (len(_encode_field(0)) + 1)),
        },
    }


@cache
def _encode_managed_fields(fields: int) -> msgspec.Raw:
    owner = b'{"manager":"kubelet","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{'
    return msgspec.Raw(b"[" + owner + b",".join(map(_encode_field, range(fields))) + b"}}]")


def _encode_field(number: int) -> bytes:
    return b'"f:%07d":{".":{}}' % number


def _encode_pages(kind: str, objects: Iterable[Object]) -> list[bytes]:
    """List answers of `PAGE` objects; the continue token is the number of the next page."""
    items = list(objects)
    starts = range(0, max(1, len(items)), PAGE_SIZE)
    meta = [{"resourceVersion": "1000000", "continue": str(number + 1)} for number in range(len(starts))]
    meta[-1].pop("continue")
    return [
        encode_json(
            {"kind": f"{kind}List", "apiVersion": "v1", "metadata": each, "items": items[start : start + PAGE_SIZE]}
        )
        for each, start in zip(meta, starts, strict=True)
    ]
