"""Nodes and pods that several tables of texts are about."""

from __future__ import annotations

from tests.cli.explain.objects import (
    a_bound_pod,
    a_gpu_node,
    a_node,
    a_waiting_pod,
)
from tests.support.manifest_builders import cards_annotation, published_card, reference_env

S1 = (a_gpu_node("gpu-1"), a_bound_pod("app-0", "gpu-1", {0: 4}), a_bound_pod("app-1", "gpu-1", {0: 4}))
"""15 units, 4 and 4 held: 7 are free."""
TWO = (
    a_gpu_node("gpu-2", published_card(0), published_card(1)),
    a_bound_pod("a", "gpu-2", {0: 12}),
    a_bound_pod("b", "gpu-2", {1: 10}),
)
"""Free are 3 and 5."""
SMALL = published_card(1, units=8, memory_mib=8192, model="Tesla T4")
WHOLE = {"ack.gpushare.placement": "require-whole-device"}
FOUR = '{"v":1,"cards":[{"uuid":"GPU-0","units":4}]}'
UNPAID = '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":15,"whole":true}]}'
HOLDS_MORE = a_bound_pod("old", "gpu-1", units=4, labels=WHOLE, annotations={"vrampack.dev/allocation": UNPAID})
"""It holds 15 units and asks for 4."""
LIMITS = {"limit-mib.vrampack.dev/main": "4301", "limit-mib.vrampack.dev/init": "2150"}
UNEVEN = a_waiting_pod(units=15)
UNEVEN["spec"]["containers"].append(
    {"name": "more", "resources": {"limits": {"aliyun.com/gpu-mem": "5"}}, "env": [reference_env("more")]}
)
SHRUNK = a_bound_pod("shrunk", "gpu-1", units=10, annotations={"vrampack.dev/allocation": FOUR})
RECORDED = (a_bound_pod("mine", "gpu-1", {0: 1}, spec={"schedulerName": "vrampack"}),)
A100 = (
    a_node("a100-0", cards_annotation(published_card(0)), labels={"pool": "a100"}),
    a_node("a100-1", cards_annotation(published_card(0)), labels={"pool": "a100"}),
    a_node("cordoned", cards_annotation(published_card(0)), labels={"pool": "a100"}, unschedulable=True),
    a_gpu_node("gpu-3"),
    a_bound_pod("a", "a100-0", {0: 12}),
    a_bound_pod("b", "a100-1", {0: 10}),
)
"""Of the selected nodes 3 and 5 units are free, and one is cordoned; all other nodes are empty."""
_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a100"]}]}
ON_A100 = {
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}}
}
