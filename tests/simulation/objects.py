"""Raw pods and nodes of the simulated cluster: few cards and large requests, so that nearly every pair of pods collides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tests.support.manifest_builders import RESOURCE, cards_annotation, published_card
from vrampack.simulator.resource_kinds import Object

MEMORY_MIB = {8: 8500, 15: 16130, 16: 16500}
NODES: Mapping[str, Sequence[int]] = {"n0": (15,), "n1": (16, 8), "n2": (15, 15)}
"""Units by card. `n2` is a legacy node: its plugin says only totals."""
LEGACY = "n2"

ASKS: tuple[tuple[int, Mapping[str, str]], ...] = (
    (4, {}),
    (7, {}),
    (9, {}),
    (15, {}),
    (16, {"aliyun.com/gpu-count": "2"}),
    (15, {"ack.gpushare.placement": "require-whole-device"}),
    (0, {}),
    (10, {"aliyun.com/gpu-count": "0"}),
)
"""Units and labels. The last two are a pod that asks for nothing, and one whose request is never valid."""

CLAIM: Object = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SHAPES = 3 * len(ASKS)

FOREIGN: tuple[Mapping[str, str], ...] = (
    {},
    {"vrampack.dev/allocation": "{"},
    {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "4"},
    {"scheduler.framework.gpushare.allocation": '{"0":{"0":30}}'},
    {"gpushare.alibabacloud.com/gpumemory": '{"0":{"7":4}}'},
    {
        "vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-n0-0","index":0,"units":4,"whole":false}],"containers":{}}'
    },
)
"""What somebody else's Binding may carry: nothing, damage, older records, a card the node has not, our own form."""


def a_node(
    name: str, *, sick: bool = False, more: Mapping[str, str] | None = None, units: Sequence[int] = ()
) -> Object:
    """A node as its agent, or its old plugin, shows it; `sick`: its first card is unhealthy."""
    units = units or NODES[name]
    metadata: Object = {"name": name, "annotations": dict(more or {})}
    if name == LEGACY:
        total = {RESOURCE: str(sum(units)), "aliyun.com/gpu-count": str(len(units))}
        return {"metadata": metadata, "status": {"allocatable": total}}
    metadata["annotations"]["vrampack.dev/cards"] = published(name, units, sick=sick)
    return {"metadata": metadata}


def published(name: str, units: Sequence[int], *, sick: bool = False) -> str:
    made = [
        published_card(
            index,
            units=each,
            memory_mib=MEMORY_MIB[each],
            uuid=f"GPU-{name}-{index}",
            healthy=not (sick and index == 0),
        )
        for index, each in enumerate(units)
    ]
    return cards_annotation(*made)


def a_pod(name: str, shape: int) -> Object:
    """A pod of one container, wired as admission leaves it; one in three may be bound late, as it has a volume claim."""
    units, labels = ASKS[shape % len(ASKS)]
    path = "metadata.annotations['visible-devices.vrampack.dev/main']"
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    container = {"name": "main", "env": env, "resources": {"limits": {RESOURCE: str(units)} if units else {}}}
    volumes = [CLAIM] if has_claim(shape) else []
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"containers": [container], "volumes": volumes}}


def has_claim(shape: int) -> bool:
    return shape // len(ASKS) % 3 == 1


def allocation_of(annotations: Mapping[str, str]) -> list[tuple[int, int]]:
    """Card index and units of a record of ours that is about to be written."""
    text = annotations.get("vrampack.dev/allocation")
    return [] if text is None else [(card["index"], card["units"]) for card in json.loads(text)["cards"]]
