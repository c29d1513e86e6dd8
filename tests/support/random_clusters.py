"""Random clusters as raw API objects: every kind of node and pod there may be, and texts that should not be written.

Made from a seed, not drawn piece by piece: ten times the clusters in the same time. Names and card counts are few
and memory is scarce, so that refusals of every kind come up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.support.manifest_builders import reference_env
from vrampack.simulator.resource_kinds import Object

MODELS = ("T4", "T4", "A10")
QUANTITIES = (
    *("1", "2", "2", "3", "4", "4", "6", "8") * 6,
    "10",
    "12",
    "15",
    "0",
    "4000m",
    "1e1",
    "1Ki",
    "4.0",
    4,
    6.0,
)
ODD_QUANTITIES = ("10G", "9223372036854775808", "-1", "1.5", "abc", "", "1e9", "0.5Gi")
ODD_COUNTS = ("0", "-1", "two", "٢", "99999", "")
RECORD_KEYS = ("vrampack.dev/allocation", "gpushare.alibabacloud.com/gpumemory", "ALIYUN_COM_GPU_MEM_IDX")
MALFORMED = (
    "",
    "null",
    "7",
    "[]",
    "{}",
    "{",
    '{"v":2,"cards":[],"pods":{}}',
    '{"v":true,"unit_mib":1024,"cards":[]}',
    '{"v":1,"unit_mib":1024,"cards":[{"uuid":"GPU-x"}]}',
    '{"v":1,"unit_mib":1024,"cards":[{"uuid":"GPU-x","index":0,"memory_mib":16130,"units":"15"}]}',
    '{"v":1,"unit_mib":1024,"cards":[{"uuid":"GPU-x","index":0,"memory_mib":16130,"units":-1}]}',
    '{"v":1,"v":1,"cards":[{"uuid":"GPU-x","index":0,"units":1}]}',
    '{"v":1,"cards":[{"uuid":"GPU-x","units":1},{"uuid":"GPU-x","units":1}],"pods":{"p0":[]}}',
    '{"v":1,"cards":[{"units":1}]}',
    '{"v":1,"cards":[{"uuid":"GPU-x","units":1.5}]}',
    '{"0":{"x":1}}',
    '{"0":{"0":-1}}',
    '{"0":{"0":0}}',
    '{"0":[0]}',
    "-1",
    "1.5",
    "NaN",
)


@dataclass(frozen=True, slots=True)
class RandomCluster:
    """What the API server holds, and what the scheduler asks of it."""

    nodes: list[Object]
    pods: list[Object]
    asking: Object
    names: list[str]


def random_cluster(seed: int) -> RandomCluster:
    """Up to five nodes, up to ten bound pods, and one pod that asks."""
    rng = Random(seed)
    nodes = [
        (an_agent_node if rng.random() < 0.75 else a_legacy_node)(rng, f"n{at}") for at in range(rng.randint(1, 5))
    ]
    bound = [a_bound_pod(rng, f"p{at}", nodes) for at in range(rng.randint(0, 10))]
    for node in nodes:
        if "vrampack.dev/cards" in (node["metadata"]["annotations"] or {}) and rng.random() < 0.3:
            node["metadata"]["annotations"]["vrampack.dev/observed"] = _observed(rng, node["metadata"]["name"], bound)
    names = [node["metadata"]["name"] for node in nodes] + ["unseen"] * (rng.random() < 0.2)
    asked = rng.choices(names, k=3) + names if rng.random() < 0.1 else rng.sample(names, rng.randint(0, len(names)))
    return RandomCluster(nodes, bound, a_pod(rng, "asking", odd=0.1), asked)


def an_agent_node(rng: Random, name: str) -> Object:
    """A node of ours: mixed cards, some unhealthy or cordoned, rarely another unit or a text that is damaged."""
    units = rng.choices((0, 4, 8, 15, 15, 16), k=rng.randint(0 if rng.random() < 0.1 else 1, 4))
    cards = [
        {
            "uuid": f"GPU-{name}-{index}",
            "index": index,
            "model": rng.choice(MODELS),
            "memory_mib": count * 1024 + 700,
            "units": count,
            "healthy": rng.random() < 0.85,
            "numa": rng.choice((None, 0, 1)),
            "mig_parent": None,
        }
        for index, count in enumerate(units)
    ]
    rng.shuffle(cards)
    published = {
        "v": 1,
        "unit_mib": 1024 if rng.random() < 0.95 else 512,
        "injection": rng.choice(("exact", "exact", "cdi", "cdi", "nri" if rng.random() < 0.3 else "exact")),
        "devices": rng.choice(("uuid", "cdi")),
        "cards": cards,
    }
    notes = {"vrampack.dev/cards": json.dumps(published)}
    cordoned = [str(card["uuid"]) for card in cards if rng.random() < 0.1]
    if cordoned:
        notes["vrampack.dev/cordoned-cards"] = ", ".join([*cordoned, "GPU-unknown"])
    if rng.random() < 0.05:
        notes["vrampack.dev/cards"] = rng.choice(MALFORMED)
    allocatable = {"aliyun.com/gpu-mem": str(sum(units)), "pods": "110", "cpu": "256", "memory": "4Ti"}
    return {"metadata": {"name": name, "annotations": notes}, "status": {"allocatable": allocatable}}


def a_legacy_node(rng: Random, name: str) -> Object:
    """A node of another plugin, or one without any GPU."""
    memory = rng.choice(("15", "30", "30", "31", "16", 30, "0", "junk", None))
    count = rng.choice(("1", "2", "2", "2", 2, "0", "1000", None))
    pairs = (
        ("aliyun.com/gpu-mem", memory),
        ("aliyun.com/gpu-count", count),
        ("cpu", "256"),
        ("memory", "4Ti"),
        ("pods", "110"),
    )
    allocatable = {key: value for key, value in pairs if value is not None}
    return {"metadata": {"name": name, "annotations": None}, "status": {"allocatable": allocatable}}


def a_pod(rng: Random, uid: str, *, odd: float) -> Object:
    """A pending pod: several containers of every kind, labels, wishes. A share of `odd` asks for the impossible."""
    labels: dict[str, str] = {}
    notes: dict[str, str] = {}
    quantities = ODD_QUANTITIES if rng.random() < odd else QUANTITIES
    main = [_container(rng, f"c{at}", quantities) for at in range(rng.choice((1, 1, 1, 2)))]
    for container in main if rng.random() < 0.85 else main[1:]:
        container["env"] = [reference_env(container["name"])]
    early = [_container(rng, f"i{at}", quantities, is_early=True) for at in range(rng.choice((0, 0, 1, 2)))]
    for container in early if rng.random() < 0.9 else early[1:]:
        container["env"] = [reference_env(container["name"])]
    if rng.random() < 0.25:
        labels["aliyun.com/gpu-count"] = rng.choice(ODD_COUNTS if rng.random() < odd else ("1", "2", "2", "2", "3"))
    if rng.random() < 0.15:
        labels["ack.gpushare.placement"] = "prefer" if rng.random() < odd else "require-whole-device"
    if rng.random() < 0.1:
        notes["vrampack.dev/card-model"] = rng.choice(("T4", "A10", "H100", "T4, A10", " , ", "T4," * 65))
    if rng.random() < 0.1:
        notes["vrampack.dev/card-uuid"] = rng.choice(("GPU-n0-0", "GPU-n0-1,GPU-n1-0", "GPU-unknown"))
    return {
        "metadata": {"name": uid, "namespace": "ml", "uid": uid, "labels": labels, "annotations": notes},
        "spec": {"initContainers": early or None, "containers": main, "priority": 0},
        "status": {"phase": "Pending"},
    }


def a_bound_pod(rng: Random, uid: str, nodes: Sequence[Object]) -> Object:
    """A pod on one of the nodes or on one that is gone, with a record of some generation, two, none, or a bad one."""
    pod = a_pod(rng, uid, odd=0.03)
    node = rng.choice(nodes)["metadata"]["name"]
    pod["spec"]["nodeName"] = node if rng.random() < 0.95 else "gone"
    pod["status"]["phase"] = rng.choice(("Running",) * 6 + ("Pending", "Succeeded", "Failed", "Unknown"))
    if rng.random() < 0.2:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    shares = {index: rng.randint(1, 6) for index in rng.sample((0, 0, 1, 1, 2, 3), rng.choice((1, 1, 1, 2)))}
    generations = ("ours", "ours", "ours", "v1", "v2", "v3", "bad")
    for generation in rng.choices(generations, k=rng.choice((0, 1, 1, 1, 1, 2))):
        pod["metadata"]["annotations"] |= _record(rng, generation, node, shares)
    return pod


def _container(rng: Random, name: str, quantities: Sequence[object], *, is_early: bool = False) -> Object:
    container: Object = {"name": name, "image": "i"}
    if rng.random() < 0.85:
        asked = {"aliyun.com/gpu-mem": rng.choice(quantities), "cpu": "100m"}
        container["resources"] = dict.fromkeys(rng.choice((("limits",), ("limits", "requests"), ("requests",))), asked)
    if is_early and rng.random() < 0.5:
        container["restartPolicy"] = "Always"
    return container


def _observed(rng: Random, node: str, bound: Sequence[Object]) -> str:
    if rng.random() < 0.1:
        return rng.choice(MALFORMED)
    seen = rng.sample(bound, min(len(bound), 3))
    pods = {pod["metadata"]["uid"]: [{"uuid": f"GPU-{node}-{rng.randint(0, 2)}", "units": 2}] for pod in seen}
    return json.dumps({"v": 1, "pods": pods})


def _record(rng: Random, generation: str, node: str, shares: dict[int, int]) -> dict[str, str]:
    by_container = json.dumps({"0": {str(index): units for index, units in shares.items()}})
    if generation == "ours":
        uuid = rng.choice((f"GPU-{node}-",) * 6 + (None, "GPU-gone-"))
        cards = [
            {"uuid": uuid and f"{uuid}{index}", "index": index, "units": units, "whole": False}
            for index, units in shares.items()
        ]
        return {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": cards, "containers": {}})}
    if generation == "v3":
        return {"gpushare.alibabacloud.com/gpumemory": by_container}
    if generation == "v2":
        return {"scheduler.framework.gpushare.allocation": by_container}
    if generation == "v1":
        size = {"ALIYUN_COM_GPU_MEM_POD": str(min(shares.values()))} if rng.random() < 0.5 else {}
        return {"ALIYUN_COM_GPU_MEM_IDX": str(min(shares)), "ALIYUN_COM_GPU_MEM_DEV": "15"} | size
    return {rng.choice(RECORD_KEYS): rng.choice(MALFORMED)}
