"""The pods with which a tenant costs other tenants the most. An API server accepts each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cluster_objects import (
    CARDS,
    BenchmarkCluster,
    Object,
    build_card_uuid,
    build_requesting_pod,
    format_node_name,
)
from benchmarks.options import BenchmarkOptions

ANNOTATION_BYTES = 256 * 1024 - 1024
"""The API server allows 256 KiB for all annotations of a pod."""
CONTAINER_COUNT = 1500
"""A pod with this many is 0.9 MB, of the 1.5 MiB that etcd allows."""
WISH_COUNT = 64
POD_COUNT = 20
"""How many pods of each kind there are, except of one."""
SHAPE_COUNT = 4096
MODEL = "NVIDIA A100-SXM4-80GB"

PodBuilder = Callable[[int], Object]
"""Builds the pod with this number."""


@dataclass(frozen=True, slots=True)
class HostileKind:
    """Pods of one kind, all different."""

    key: str
    what: str
    build_pod: PodBuilder
    count: int
    calls: int = 1
    """How often a scheduler asks about each of them."""
    sample_size: int | None = None
    """How many nodes a call names; None: all."""


def list_hostile_kinds(cluster: BenchmarkCluster, options: BenchmarkOptions) -> list[HostileKind]:
    """All kinds, for this cluster."""
    count, shapes = options.scale_count(POD_COUNT), options.scale_count(SHAPE_COUNT)

    def draw_uuids(number: int) -> list[str]:
        chance = random.Random(f"{cluster.seed} {number}")
        return [build_card_uuid(chance.randrange(cluster.nodes), chance.randrange(CARDS)) for _ in range(WISH_COUNT)]

    def build_wishing_pod(number: int) -> Object:
        return _annotate(build_requesting_pod(f"wishes-{number}", 8), "card-uuid", ",".join(draw_uuids(number)))

    return [
        HostileKind("annotations", "annotations of 256 KiB", _build_annotated_pod, count),
        HostileKind("wishes", f"{WISH_COUNT} wishes of their own", build_wishing_pod, count),
        HostileKind("labels", "labels that are not valid", _build_mislabelled_pod, count),
        HostileKind("name-label", "a label `Name`, asked three times", _build_name_labelled_pod, count, calls=3),
        HostileKind("containers", f"{CONTAINER_COUNT:,} containers", _build_crowded_pod, count),
        HostileKind("shapes", f"{shapes:,} shapes, 500 named", _build_shaped_pod, shapes, sample_size=500),
    ]


def build_nominee(number: int, node: int) -> Object:
    """A pod for which others were evicted from this node."""
    pod = build_requesting_pod(f"nominee-{number}", 1)
    pod["spec"]["priority"] = 1000
    pod["status"]["nominatedNodeName"] = format_node_name(node)
    return pod


def build_preemptor(number: int) -> Object:
    """A pod that needs any whole card."""
    pod = build_requesting_pod(f"preemptor-{number}", 80)
    pod["spec"]["priority"] = 1000
    return pod


def _build_annotated_pod(number: int) -> Object:
    """A pod that names cards that no node has, as many as fit."""
    wish = f"GPU-{number:08x}-{{:012x}},"
    texts = (wish.format(each) for each in range(ANNOTATION_BYTES // len(wish.format(0))))
    return _annotate(build_requesting_pod(f"annotations-{number}", 8), "card-uuid", "".join(texts))


def _build_mislabelled_pod(number: int) -> Object:
    """In turn: an invalid count, a count by which the units do not divide, and an unknown placement."""
    pod = build_requesting_pod(f"labels-{number}", 1009 + number)
    wrong = (
        {"aliyun.com/gpu-count": f"x{number}"},
        {"aliyun.com/gpu-count": "8"},
        {"ack.gpushare.placement": f"device-{number}"},
    )
    pod["metadata"]["labels"] |= wrong[number % len(wrong)]
    return pod


def _build_name_labelled_pod(number: int) -> Object:
    pod = build_requesting_pod(f"name-label-{number}", 49 + number)
    pod["metadata"]["labels"]["Name"] = f"x{number}"
    return pod


def _build_crowded_pod(number: int) -> Object:
    pod = build_requesting_pod(f"containers-{number}", 1)
    (container,) = pod["spec"]["containers"]
    names = [f"c{number}-{each}" for each in range(CONTAINER_COUNT)]
    pod["spec"]["containers"] = [{**container, "name": name} for name in names]
    return pod


def _build_shaped_pod(number: int) -> Object:
    """A pod with one of 80 sizes on one to eight cards, and one of seven lists of models; the first 4,480 are all different."""
    units, rest = number % 80 + 1, number // 80
    count, models = rest % 8 + 1, rest // 8
    pod = build_requesting_pod(f"shapes-{number}", units * count, count=count)
    return _annotate(pod, "card-model", f"{MODEL},other-{models}")


def _annotate(pod: Object, key: str, text: str) -> Object:
    annotations = {**pod["metadata"].get("annotations", {}), f"vrampack.dev/{key}": text}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
