"""What explain prints: of pods that fit nowhere, of those that wait although they would fit, and of all others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.explain.objects import (
    UNSCHEDULABLE,
    Object,
    a_bound_pod,
    a_gpu_node,
    a_node,
    a_waiting_pod,
    run_explain,
)
from tests.cli.explain.scenes import LIMITS, RECORDED, S1, SHRUNK, SMALL, TWO, UNEVEN, WHOLE
from tests.support.manifest_builders import cards_annotation, published_card

REFUSED: dict[str, tuple[tuple[Object, ...], str]] = {
    # 15 - 8 = 7 free, 8 asked: 1 is missing
    "no room on one card": (
        (*S1, *TWO, a_node("cpu-1"), a_waiting_pod(units=8)),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory
gpu-2     0        3/15        5  not enough free memory
gpu-2     1        5/15        3  not enough free memory
1 node has no shareable GPU memory.

0/3 nodes fit: 2 no card with enough free memory, 1 no shareable GPU memory.
2 nodes have 15 units free together, but not 8 on one card that the pod may take.
Next: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    # 2 x 4 asked; free are 3 and 5 on gpu-2, gpu-1 has one card
    "not enough cards with room": (
        (*S1, *TWO, a_waiting_pod(units=8, labels={"aliyun.com/gpu-count": "2"})),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on each of 2 cards.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        1  not enough free memory
gpu-2     1        5/15        0  has room, but 2 such cards are asked for
gpu-1     0        7/15        0  has room, but 2 such cards are asked for

0/2 nodes fit: 1 too few cards, 1 not enough cards with free memory.
2 nodes have 15 units free together, but not 4 on each of 2 cards of one node.
Next: free 1 unit on gpu-2 GPU0 (pods there: default/a 12), or add a node.
""",
    ),
    # gpu-1 holds 8, the cards of gpu-2 hold 12 and 10
    "no empty card": (
        (*S1, *TWO, a_waiting_pod(units=4, labels=WHOLE)),
        """\
Pod default/w is pending and asks a whole card of at least 4 units (4 GiB).

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        8  not empty
gpu-2     0        3/15       12  not empty
gpu-2     1        5/15       10  not empty

0/2 nodes fit: 2 no empty card.
2 nodes have 15 units free together, but not an empty card.
Next: empty gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    # 20 = 2 x 10, and gpu-2 has two cards of 15
    "larger than any card": (
        (*S1, *TWO, a_waiting_pod(units=20)),
        """\
Pod default/w is pending and asks 20 units (20 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than asked
gpu-2     0        3/15        -  smaller than asked
gpu-2     1        5/15        -  smaller than asked

0/2 nodes fit: 2 larger than any card.
Next: ask at most 15 units on a card, the largest there is, or take the memory from several: label aliyun.com/gpu-count: "2".
""",
    ),
    # 4 x 2^30; the card has 15
    "bytes where units are counted": (
        (*S1, a_waiting_pod(units="4Gi")),
        """\
Pod default/w is pending and its request cannot be served.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than asked

0/1 nodes fit: 1 larger than any card.
4Gi means 4294967296 units of 1 GiB: aliyun.com/gpu-mem counts units, not bytes. For 4 GiB ask 4.
Next: correct the pod and create it again: spec.containers[0].resources.limits["aliyun.com/gpu-mem"]: '4Gi' is 4294967296 units, \
more than 1048576; give units of the resource, e.g. "10" for 10 GiB.
""",
    ),
    "larger than any card and nothing to divide": (
        (*S1, a_waiting_pod(units=31)),
        """\
Pod default/w is pending and asks 31 units (31 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than asked

0/1 nodes fit: 1 larger than any card.
Next: ask at most 15 units on a card, the largest there is.
""",
    ),
    # 15 + 5 = 20 would do on two cards, but 15 is odd
    "larger than any card, and its containers do not divide": (
        (*TWO, UNEVEN),
        """\
Pod default/w is pending and asks 20 units (20 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        -  smaller than asked
gpu-2     1        5/15        -  smaller than asked

0/1 nodes fit: 1 larger than any card.
Next: ask at most 15 units on a card, the largest there is.
""",
    ),
    # 3 x 4 asked; 12 also is 2 x 6, or 1 x 12
    "too few cards": (
        (*TWO, a_waiting_pod(units=12, labels={"aliyun.com/gpu-count": "3"})),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on each of 3 cards.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        1  not enough free memory
gpu-2     1        5/15        0  has room, but 3 such cards are asked for

0/1 nodes fit: 1 too few cards.
Next: no node has 3 cards of at least 4 units, the best has 2: set the label aliyun.com/gpu-count: "1", or add such a node.
""",
    ),
    "another model": (
        (
            a_gpu_node("gpu-1", published_card(0), SMALL),
            a_waiting_pod(units=8, annotations={"vrampack.dev/card-model": "A100,H100"}),
        ),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card of model A100 or H100.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        -  model Tesla V100-SXM2-16GB is not allowed
gpu-1     1         8/8        -  model Tesla T4 is not allowed

0/1 nodes fit: 1 card model not allowed.
1 node has 23 units free together, but not 8 on one card that the pod may take.
Next: no node has a card of model A100 or H100 with 8 units: widen the annotation vrampack.dev/card-model; large enough are Tesla T4 (1 card), Tesla V100-SXM2-16GB (1 card).
""",
    ),
    # GPU-1 has 8 units, too small for 9
    "another uuid": (
        (
            a_gpu_node("gpu-1", published_card(0), SMALL),
            a_waiting_pod(units=9, annotations={"vrampack.dev/card-uuid": "GPU-1,GPU-7"}),
        ),
        """\
Pod default/w is pending and asks 9 units (9 GiB) on one card named GPU-1 or GPU-7.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        -  its uuid is not asked for
gpu-1     1         8/8        -  smaller than asked

0/1 nodes fit: 1 card uuid not here.
1 node has 23 units free together, but not 9 on one card that the pod may take.
Next: widen the annotation vrampack.dev/card-uuid: GPU-1 is gpu-1 GPU1, GPU-7 is on no node; none of them can be used.
""",
    ),
    "request not valid": (
        (*S1, a_waiting_pod(units="1.5")),
        """\
Pod default/w is pending and its request cannot be served.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  request not valid

0/1 nodes fit: 1 request not valid.
Next: correct the pod and create it again: spec.containers[0].resources.limits["aliyun.com/gpu-mem"]: '1.5' is not a whole number of units; give a whole number of units, e.g. "4".
""",
    ),
    # 7 free on the cordoned card
    "cordoned and unhealthy": (
        (
            a_gpu_node("gpu-1", published_card(0), published_card(1, healthy=False), cordoned="GPU-0"),
            a_bound_pod("a", "gpu-1", {0: 8}),
            a_waiting_pod(units=7),
        ),
        """\
Pod default/w is pending and asks 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  cordoned
gpu-1     1       15/15        0  unhealthy

0/1 nodes fit: 1 card unhealthy or cordoned.
Next: take GPU-0 out of the annotation "vrampack.dev/cordoned-cards" of gpu-1, or add a card.
""",
    ),
    # gpu-2 GPU1 has 5 free but is cordoned; gpu-1 lacks 1 of 8
    "free a little, or heal": (
        (*S1, a_gpu_node("gpu-2", cordoned="GPU-0"), a_waiting_pod(units=8)),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory
gpu-2     0       15/15        0  cordoned

0/2 nodes fit: 1 no card with enough free memory, 1 card unhealthy or cordoned.
Next: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or take GPU-0 out of the annotation "vrampack.dev/cordoned-cards" of gpu-2, or add a card.
""",
    ),
    "another unit": (
        (a_node("gpu-1", cards_annotation(published_card(0), unit_mib=512)), a_waiting_pod()),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     -           -        -  its unit is 512 MiB, the cluster's is 1024 MiB; nothing is placed here until they agree

0/1 nodes fit: 1 no shareable GPU memory.
Next: repair gpu-1: its unit is 512 MiB, the cluster's is 1024 MiB; nothing is placed here until they agree.
""",
    ),
    "an annotation that cannot be read": (
        (*S1, a_node("gpu-3", "{"), a_waiting_pod()),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory
gpu-3     -           -        -  annotation "vrampack.dev/cards": not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)

0/2 nodes fit: 1 no shareable GPU memory, 1 no card with enough free memory.
Next: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    "an injection that this version does not know": (
        (a_node("gpu-3", cards_annotation(published_card(0), injection="nri")), a_waiting_pod()),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-3     -           -        -  annotation "vrampack.dev/cards": injection: 'nri' is not known to this version: what runs here is counted, and nothing new is placed here; upgrade the extender

0/1 nodes fit: 1 injection mode not known.
Next: repair gpu-3: annotation "vrampack.dev/cards": injection: 'nri' is not known to this version: what runs here is counted, \
and nothing new is placed here; upgrade the extender.
""",
    ),
    "created before the admission policy": (
        (*S1, a_waiting_pod(is_wired=False)),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  created before the admission policy

0/1 nodes fit: 1 created before the admission policy.
Next: recreate the pod: it was created before the admission policy, so its containers do not read their cards from its \
annotations; if a new one is told the same, see that the policies of manifests/admission/exact are applied.
""",
    ),
    "no GPU at all": (
        (a_node("cpu-1"), a_node("cpu-2"), a_waiting_pod()),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

2 nodes have no shareable GPU memory.

0/2 nodes fit: 2 no shareable GPU memory.
Next: no node shares GPU memory (aliyun.com/gpu-mem): see that the agent runs on the GPU nodes and publishes their cards.
""",
    ),
    "no node at all": (
        (a_waiting_pod(),),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

0/0 nodes fit.
Next: no node shares GPU memory (aliyun.com/gpu-mem): see that the agent runs on the GPU nodes and publishes their cards.
""",
    ),
    # its 8 count on both cards: 7 free on each
    "a pod without a record is in the way": (
        (
            a_gpu_node("gpu-1", published_card(0), published_card(1)),
            a_bound_pod("stray", "gpu-1", units=8),
            a_waiting_pod(units=8),
        ),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory
gpu-1     1        7/15        1  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
1 node has 14 units free together, but not 8 on one card that the pod may take.
Next: free 1 unit on gpu-1 GPU0 (pods there: default/stray 8 (on every card)), or add a card.
""",
    ),
    # 15 - 18 = 3 over; 3 + 4 must go
    "over-committed": (
        (
            a_gpu_node("gpu-1"),
            a_bound_pod("a", "gpu-1", {0: 9}),
            a_bound_pod("b", "gpu-1", {0: 9}),
            a_waiting_pod(units=4),
        ),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        0/15        7  not enough free memory; overcommitted by 3

0/1 nodes fit: 1 no card with enough free memory.
Next: free 7 units on gpu-1 GPU0 (pods there: default/a 9, default/b 9), or add a card.
""",
    ),
    # gpu-1 lacks 1 but is tainted; gpu-2 lacks 3
    "the nearest room is behind a taint": (
        (
            a_gpu_node("gpu-1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
            a_bound_pod("app-0", "gpu-1", {0: 8}),
            *TWO,
            a_waiting_pod(units=8),
        ),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        5  not enough free memory
gpu-2     1        5/15        3  not enough free memory
gpu-1     0        7/15        1  not enough free memory; taint team=a:NoSchedule is not tolerated

0/2 nodes fit: 2 no card with enough free memory.
2 nodes have 15 units free together, but not 8 on one card that the pod may take.
Next: free 3 units on gpu-2 GPU1 (pods there: default/b 10), or add a card.
""",
    ),
    # 30 units on 2 cards
    "a legacy node": (
        (a_node("old", allocatable={"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}), a_waiting_pod(units=16)),
        """\
Pod default/w is pending and asks 16 units (16 GiB) on one card.

NODE  CARD  FREE/TOTAL  MISSING  WHY
old      0       15/15        -  smaller than asked
old      1       15/15        -  smaller than asked

0/1 nodes fit: 1 larger than any card.
1 node has 30 units free together, but not 16 on one card that the pod may take.
Next: ask at most 15 units on a card, the largest there is, or take the memory from several: label aliyun.com/gpu-count: "2".
""",
    ),
}
"""A pod that fits nowhere: each reason, and the next step."""

FITTING: dict[str, tuple[tuple[Object, ...], str]] = {
    "nobody has looked at it": (
        (*S1, a_waiting_pod(units=7)),
        """\
Pod default/w is pending and asks 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 rounding, and what decides within a step.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    "nobody has looked, and another name": (
        (*S1, a_waiting_pod(units=7, spec={"schedulerName": "default-scheduler"})),
        """\
Pod default/w is pending and asks 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 rounding, and what decides within a step.
Next: no scheduler has looked at it yet: see that one named default-scheduler runs; its schedulerName is default-scheduler, the pods that the extender bound came through vrampack.
""",
    ),
    "another scheduler than the one that calls": (
        (*S1, *RECORDED, a_waiting_pod(units=4, spec={"schedulerName": "other"}, said=UNSCHEDULABLE)),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        6/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -11.17 = -10.4 waste of the cut + -0.7689 rounding, and what decides within a step.
Scheduler other says: 0/9 nodes are available: 9 of the scheduler's own words.
Next: the scheduler's own words above say what it lacks besides memory of a card; its schedulerName is other, the pods that the extender bound came through vrampack.
""",
    ),
    "the scheduler's own reasons": (
        (*S1, a_waiting_pod(units=7, said="0/1 nodes are available: 1 Insufficient cpu.")),
        """\
Pod default/w is pending and asks 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 rounding, and what decides within a step.
Scheduler vrampack says: 0/1 nodes are available: 1 Insufficient cpu.
Next: the scheduler's own words above say what it lacks besides memory of a card.
""",
    ),
    "room has come since": (
        (*S1, a_waiting_pod(units=7, said="0/1 nodes are available: 1 no card with enough free memory.")),
        """\
Pod default/w is pending and asks 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 rounding, and what decides within a step.
Scheduler vrampack says: 0/1 nodes are available: 1 no card with enough free memory.
Next: wait: room has come since its last attempt, and the scheduler tries again within five minutes.
""",
    ),
    "tainted, cordoned, not selected": (
        (
            a_gpu_node("gpu-1", taints=[{"key": "team", "effect": "NoExecute"}], unschedulable=True),
            a_waiting_pod(units=4, spec={"nodeSelector": {"disk": "ssd"}}),
        ),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; the node is cordoned; taint team:NoExecute is not tolerated; nodeSelector wants disk=ssd

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -69.61 = -57.2 waste of the cut + -11.8 opening of a card + -0.6089 rounding, and what decides within a step.
Next: the card of gpu-1 would do, but the node is cordoned; taint team:NoExecute is not tolerated; nodeSelector wants disk=ssd: change the node or the pod.
""",
    ),
    # the device plugin is not registered
    "kubelet offers less than the cards have": (
        (
            a_node("gpu-1", cards_annotation(published_card(0)), allocatable={"aliyun.com/gpu-mem": "0"}),
            a_waiting_pod(units=4),
        ),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits; kubelet offers 0 of its 15 units (is the node's agent registered with it?)

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -69.61 = -57.2 waste of the cut + -11.8 opening of a card + -0.6089 rounding, and what decides within a step.
Next: the card of gpu-1 would do, but kubelet offers 0 of its 15 units (is the node's agent registered with it?): change the node or the pod.
""",
    ),
    "held back by gates": (
        (*S1, a_waiting_pod(units=4, spec={"schedulingGates": [{"name": "quota"}]})),
        """\
Pod default/w is held back by its scheduling gates and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 waste of the cut + -0.6279 rounding, and what decides within a step.
Next: its scheduling gates hold it back: quota; whatever set them must remove them.
""",
    ),
    # gpu-1 is the tighter one
    "one of two nodes is tainted": (
        (
            a_gpu_node("gpu-1", taints=[{"key": "team", "effect": "NoSchedule"}]),
            a_bound_pod("a", "gpu-1", {0: 8}),
            a_gpu_node("gpu-2"),
            a_waiting_pod(units=4),
        ),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0       15/15        0  fits
gpu-1     0        7/15        0  fits; taint team:NoSchedule is not tolerated

2/2 nodes fit.
Policy tessellate would take gpu-2 GPU0: score -69.61 = -57.2 waste of the cut + -11.8 opening of a card + -0.6089 rounding, and what decides within a step.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    "held back by gates, and no room": (
        (*S1, a_waiting_pod(units=8, spec={"schedulingGates": [{"name": "quota"}]})),
        """\
Pod default/w is held back by its scheduling gates and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
Next: its scheduling gates hold it back: quota; whatever set them must remove them. Then: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    # a record of 4 on a pod that asks 10: 15 - 10 = 5 by the scheduler's sum
    "the cards have room, the scheduler's sum has not": (
        (a_gpu_node("gpu-1"), SHRUNK, a_waiting_pod(units=8)),
        """\
Pod default/w is pending and asks 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       11/15        0  fits; the scheduler, which adds up what pods ask, counts 5 units free

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 waste of the cut + -0.6279 rounding, and what decides within a step.
Next: the card of gpu-1 would do, but the scheduler, which adds up what pods ask, counts 5 units free: change the node or the pod.
""",
    ),
    "a preemption is under way": (
        (*S1, a_waiting_pod(units=4, status={"nominatedNodeName": "gpu-1"})),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 waste of the cut + -0.6279 rounding, and what decides within a step.
Next: wait: pods of lower priority are leaving gpu-1 for it.
""",
    ),
    "two cards": (
        (
            a_gpu_node("gpu-1", published_card(0), published_card(1)),
            a_waiting_pod(units=8, labels={"aliyun.com/gpu-count": "2"}),
        ),
        """\
Pod default/w is pending and asks 4 units (4 GiB) on each of 2 cards.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        0  fits
gpu-1     1       15/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0 and GPU1: score -138.6 = -114.4 waste of the cut + -23.6 opening of a card + -0.6315 rounding, and what decides within a step.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
}
"""A pod that waits although it would fit."""

BY_THEMSELVES: dict[str, tuple[tuple[Object, ...], str]] = {
    "bound": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, annotations=LIMITS)),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0

CONTAINER  LIMIT(MiB)
init             2150
main             4301
""",
    ),
    "bound with a limit that is no number": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, annotations={"limit-mib.vrampack.dev/main": "4301Mi"})),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "bound to two cards": (
        (*TWO, a_bound_pod("w", "gpu-2", {0: 2, 1: 2})),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 2 cards of gpu-2.

NODE   CARD  UNITS  UUID
gpu-2     0      2  GPU-0
gpu-2     1      2  GPU-1
""",
    ),
    "bound by another plugin": (
        (
            a_gpu_node("gpu-1"),
            a_bound_pod("w", "gpu-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "4"}),
        ),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "bound without a record": (
        (*S1, a_bound_pod("w", "gpu-1")),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: it has no record and counts on every card of its node; delete it, or let its agent observe it.
""",
    ),
    "bound with a damaged record": (
        (*S1, a_bound_pod("w", "gpu-1", annotations={"vrampack.dev/allocation": "{"})),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: annotation "vrampack.dev/allocation": not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); the pod counts on every card of its node.
""",
    ),
    "bound to a card that is gone": (
        (*S1, a_bound_pod("w", "gpu-1", {3: 4})),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: its record names a card the node does not have; the pod counts on every card of its node.
""",
    ),
    "bound to a node that is gone": (
        (*S1, a_bound_pod("w", "gone", {0: 4})),
        """\
Pod default/w is bound to gone.

Its cards are not known: its node is not there any more.
""",
    ),
    "bound and being deleted": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, deletionTimestamp="2026-01-01T00:00:00Z")),
        """\
Pod default/w is being deleted and, until it is gone, holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "pending and being deleted": (
        (*S1, a_waiting_pod(deletionTimestamp="2026-01-01T00:00:00Z")),
        """\
Pod default/w is being deleted and was never bound: it will not be placed.
""",
    ),
    "finished": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, status={"phase": "Succeeded"})),
        """\
Pod default/w has finished (Succeeded) and holds nothing.
""",
    ),
    "asks nothing of ours": (
        (*S1, a_waiting_pod(units=0, said="0/1 nodes are available: 1 Insufficient cpu.")),
        """\
Pod default/w asks no aliyun.com/gpu-mem: the extender has no part in where it goes.

Scheduler vrampack says: 0/1 nodes are available: 1 Insufficient cpu.
""",
    ),
}
"""Pods that wait for no card: bound, gated, deleted, finished, not ours."""

TEXTS = REFUSED | FITTING | BY_THEMSELVES


@pytest.mark.parametrize(("cluster", "text"), TEXTS.values(), ids=TEXTS)
async def test_a_pod_is_told_where_it_stands_and_what_to_do(
    cluster: tuple[Object, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_explain(tmp_path, cluster) == 0
    assert capsys.readouterr().out == text


def test_what_is_said_of_a_card_is_documented() -> None:
    """Each cell of the column WHY above; what names a model or a number is compared without it."""
    page = (Path(__file__).parents[3] / "docs/explain.md").read_text()
    tables = [
        line for _, text in REFUSED.values() for line in text.splitlines() if re.match(r"\S+ +\d+ +\d+/\d+ ", line)
    ]
    said = {word for line in tables for word in re.split(r" {2,}", line)[-1].split("; ")}
    assert len(said) > 5
    table = page.partition("| `WHY` | means |")[2].partition("\n\n")[0]
    starts = tuple(
        re.split(r" [NM]\b", text)[0]
        for row in table.splitlines()
        for text in re.findall("`([^`]+)`", row.rpartition(" | ")[0])
    )
    assert [word for word in said if not word.startswith(starts)] == []


def test_no_case_hides_another_of_its_name() -> None:
    assert len(TEXTS) == len(REFUSED) + len(FITTING) + len(BY_THEMSELVES)
