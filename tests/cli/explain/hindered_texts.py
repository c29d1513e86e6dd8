"""What explain prints of pods that the scheduler's own filters keep from nodes, by case: the objects of the cluster, and the text."""

from __future__ import annotations

from tests.cli.explain.objects import (
    Object,
    a_bound_pod,
    a_gpu_node,
    a_node,
    a_waiting_pod,
)
from tests.cli.explain.scenes import A100, ON_A100, SHRUNK
from tests.support.manifest_builders import cards_annotation, published_card

SAID = (
    "0/5 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 2 no card with enough free memory."
)
WITH_CPU = a_node("gpu-1", cards_annotation(published_card(0)), allocatable={"cpu": "8"})
BUSY = a_waiting_pod("busy", 0, spec={"nodeName": "gpu-1"})
BUSY["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "6"}}}]


def asking_cpu(cpu: str) -> Object:
    pod = a_waiting_pod(units=8)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    return pod


HINDERED: dict[str, tuple[tuple[Object, ...], str]] = {
    "tainted, cordoned, not selected": (
        (
            a_gpu_node("gpu-1", taints=[{"key": "team", "effect": "NoExecute"}], unschedulable=True),
            a_waiting_pod(units=4, spec={"nodeSelector": {"disk": "ssd"}}),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

gpu-1 may not be used by the pod: the node is cordoned; taint team:NoExecute is not tolerated; nodeSelector wants disk=ssd.

0/1 nodes fit: 1 node(s) were unschedulable.
Next: the card of gpu-1 would fit, but the node is cordoned; taint team:NoExecute is not tolerated; nodeSelector wants disk=ssd: change the node or the pod.
""",
    ),
    # the device plugin is not registered
    "kubelet offers less than the cards have": (
        (
            a_node("gpu-1", cards_annotation(published_card(0)), allocatable={"aliyun.com/gpu-mem": "0"}),
            a_waiting_pod(units=4),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; kubelet offers 0 of its 15 units (is the node's agent registered with it?)

0/1 nodes fit: 1 Insufficient aliyun.com/gpu-mem.
Next: the card of gpu-1 would fit, but kubelet offers 0 of its 15 units (is the node's agent registered with it?): change the node or the pod.
""",
    ),
    # a record of 4 on a pod that asks 10: 15 - 10 = 5 by the scheduler's sum
    "the cards have room, the scheduler's sum has not": (
        (a_gpu_node("gpu-1"), SHRUNK, a_waiting_pod(units=8)),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       11/15        0  fits; the scheduler, which adds up what pods ask, counts 5 units free

0/1 nodes fit: 1 Insufficient aliyun.com/gpu-mem.
Next: the card of gpu-1 would fit, but the scheduler, which adds up what pods ask, counts 5 units free: change the node or the pod.
""",
    ),
    # 15 - 12 = 3 and 15 - 10 = 5 free of the selected nodes
    "the selected nodes are full": (
        (*A100, a_gpu_node("gpu-4"), a_waiting_pod(units=8, said=SAID, spec={"nodeSelector": {"pool": "a100"}})),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE    CARD  FREE/TOTAL  MISSING  WHY
a100-1     0        5/15        3  not enough free memory
a100-0     0        3/15        5  not enough free memory
2 nodes may not be used by the pod: nodeSelector wants pool=a100.
cordoned may not be used by the pod: the node is cordoned.

0/5 nodes fit: 2 node(s) didn't match Pod's node affinity/selector, 2 no card with enough free memory, 1 node(s) were unschedulable.
2 nodes have 8 units free together, but not 8 on one card that the pod may take.
Scheduler vrampack says: 0/5 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 2 no card with enough free memory.
Next: free 3 units on a100-1 GPU0 (pods there: default/b 10), or add a card.
""",
    ),
    # gpu-3 has room, and is not meant; 15 - 12 = 3 free on the cordoned one
    "the only selected node is cordoned and full": (
        (A100[2], A100[3], a_bound_pod("c", "cordoned", {0: 12}), a_waiting_pod(units=8, spec=ON_A100)),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

gpu-3 may not be used by the pod: node affinity wants pool=a100.
cordoned may not be used by the pod: the node is cordoned.

0/2 nodes fit: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable.
Next: free 5 units on cordoned GPU0 (pods there: default/c 12) (but there: the node is cordoned), or add a card.
""",
    ),
    "node affinity selects full nodes": (
        (*A100, a_waiting_pod(units=8, said=SAID, spec=ON_A100)),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE    CARD  FREE/TOTAL  MISSING  WHY
a100-1     0        5/15        3  not enough free memory
a100-0     0        3/15        5  not enough free memory
gpu-3 may not be used by the pod: node affinity wants pool=a100.
cordoned may not be used by the pod: the node is cordoned.

0/4 nodes fit: 2 no card with enough free memory, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable.
2 nodes have 8 units free together, but not 8 on one card that the pod may take.
Scheduler vrampack says: 0/5 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 2 no card with enough free memory.
Next: free 3 units on a100-1 GPU0 (pods there: default/b 10), or add a card.
""",
    ),
    # 20 units on no selected card; the others have 15
    "the selected nodes are too small": (
        (*A100, a_gpu_node("gpu-4", published_card(0, units=24)), a_waiting_pod(units=20, spec=ON_A100)),
        """\
Pod default/w is pending and asks for 20 units (20 GiB) on one card.

NODE    CARD  FREE/TOTAL  MISSING  WHY
a100-0     0        3/15        -  smaller than requested
a100-1     0        5/15        -  smaller than requested
2 nodes may not be used by the pod: node affinity wants pool=a100.
cordoned may not be used by the pod: the node is cordoned.

0/5 nodes fit: 2 node(s) didn't match Pod's node affinity/selector, 2 larger than any card, 1 node(s) were unschedulable.
Next: ask for at most 15 units on a card, the largest there is; or let it use gpu-4, where it would fit: node affinity wants pool=a100.
""",
    ),
    # 8 - 6 of the other pod leave 2
    "the node lacks CPU": (
        (WITH_CPU, BUSY, asking_cpu("5")),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; too little cpu (2 of 8 are free, 5 needed)

0/1 nodes fit: 1 Insufficient cpu.
Next: the card of gpu-1 would fit, but the node has too little cpu (2 of 8 are free, 5 needed): free 3 cpu there, or add a node.
""",
    ),
    "the node has no place for a further pod": (
        (
            a_node("gpu-1", cards_annotation(published_card(0)), allocatable={"cpu": "8", "pods": "1"}),
            BUSY,
            asking_cpu("5"),
        ),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; it takes 1 pods, and has as many; too little cpu (2 of 8 are free, 5 needed)

0/1 nodes fit: 1 Too many pods.
Next: the card of gpu-1 would fit, but the node has no place for a further pod (it takes 1 pods, and has as many); too little cpu (2 of 8 are free, 5 needed): free the place of a pod and 3 cpu there, or add a node.
""",
    ),
    "no node has so much CPU": (
        (WITH_CPU, a_gpu_node("gpu-2", taints=[{"key": "team", "effect": "NoSchedule"}]), asking_cpu("100")),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; too little cpu (8 of 8 are free, 100 needed)
gpu-2 may not be used by the pod: taint team:NoSchedule is not tolerated.

0/2 nodes fit: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).
Next: the card of gpu-1 would fit, but the node has too little cpu (8 of 8 are free, 100 needed): ask for at most 8 cpu, or add a larger node.
""",
    ),
    "the card and the CPU are taken": (
        (WITH_CPU, BUSY, a_bound_pod("a", "gpu-1", {0: 12}), asking_cpu("5")),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        3/15        5  not enough free memory; too little cpu (2 of 8 are free, 5 needed)

0/1 nodes fit: 1 Insufficient cpu.
Next: free 5 units on gpu-1 GPU0 (pods there: default/a 12) (but there: too little cpu (2 of 8 are free, 5 needed)), or add a card.
""",
    ),
}
"""A pod that no node takes because of labels, taints or resources besides cards."""
