"""What explain prints of pods that fit nowhere, by case: the objects of the cluster, and the text."""

from __future__ import annotations

from tests.cli.explain.objects import (
    Object,
    a_bound_pod,
    a_gpu_node,
    a_node,
    a_waiting_pod,
)
from tests.cli.explain.scenes import S1, SMALL, TWO, UNEVEN, WHOLE
from tests.support.manifest_builders import cards_annotation, published_card

REFUSED: dict[str, tuple[tuple[Object, ...], str]] = {
    # 15 - 8 = 7 free, 8 asked: 1 is missing
    "no room on one card": (
        (*S1, *TWO, a_node("cpu-1"), a_waiting_pod(units=8)),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

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
Pod default/w is pending and asks for 4 units (4 GiB) on each of 2 cards.

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
        (*S1, *TWO, a_waiting_pod(units=15, labels=WHOLE)),
        """\
Pod default/w is pending and asks for a whole card of 15 units (15 GiB).

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        8  not empty
gpu-2     0        3/15       12  not empty
gpu-2     1        5/15       10  not empty

0/2 nodes fit: 2 no empty card.
2 nodes have 15 units free together, but not an empty card.
Next: empty gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    # two whole cards of 15 ask for 30
    "whole card asks for too little": (
        (*TWO, a_waiting_pod(units=28, labels={**WHOLE, "aliyun.com/gpu-count": "2"})),
        """\
Pod default/w is pending and asks for 2 whole cards of 28 units (28 GiB) together.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        -  only for a request for all of its 15 units
gpu-2     1        5/15        -  only for a request for all of its 15 units

0/1 nodes fit: 1 whole card asks for too little.
The configuration that was read does not set rules.whole_cards, and paid holds because no running pod speaks against it: set it to paid or as-requested.
Next: ask for 30 units, all of 2 cards of gpu-2.
""",
    ),
    # 20 = 2 x 10, and gpu-2 has two cards of 15
    "larger than any card": (
        (*S1, *TWO, a_waiting_pod(units=20)),
        """\
Pod default/w is pending and asks for 20 units (20 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than requested
gpu-2     0        3/15        -  smaller than requested
gpu-2     1        5/15        -  smaller than requested

0/2 nodes fit: 2 larger than any card.
Next: ask for at most 15 units on a card, the largest there is, or take the memory from several: label aliyun.com/gpu-count: "2".
""",
    ),
    # 4 x 2^30; the card has 15
    "bytes where units are counted": (
        (*S1, a_waiting_pod(units="4Gi")),
        """\
Pod default/w is pending and its request cannot be met.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than requested

0/1 nodes fit: 1 larger than any card.
4Gi means 4294967296 units of 1 GiB: aliyun.com/gpu-mem counts units, not bytes. For 4 GiB ask for 4.
Next: correct the pod and create it again: spec.containers[0].resources.limits["aliyun.com/gpu-mem"]: '4Gi' is 4294967296 units, \
more than 1048576; give units of the resource, e.g. "10" for 10 GiB.
""",
    ),
    "larger than any card and nothing to divide": (
        (*S1, a_waiting_pod(units=31)),
        """\
Pod default/w is pending and asks for 31 units (31 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  smaller than requested

0/1 nodes fit: 1 larger than any card.
Next: ask for at most 15 units on a card, the largest there is.
""",
    ),
    # 15 + 5 = 20 would do on two cards, but 15 is odd
    "larger than any card, and its containers do not divide": (
        (*TWO, UNEVEN),
        """\
Pod default/w is pending and asks for 20 units (20 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        -  smaller than requested
gpu-2     1        5/15        -  smaller than requested

0/1 nodes fit: 1 larger than any card.
Next: ask for at most 15 units on a card, the largest there is.
""",
    ),
    # 3 x 4 asked; 12 also is 2 x 6, or 1 x 12
    "too few cards": (
        (*TWO, a_waiting_pod(units=12, labels={"aliyun.com/gpu-count": "3"})),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on each of 3 cards.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        1  not enough free memory
gpu-2     1        5/15        0  has room, but 3 such cards are asked for

0/1 nodes fit: 1 too few cards.
Next: no node has 3 cards of at least 4 units, the best has 2: set the label aliyun.com/gpu-count: "2", or add such a node.
""",
    ),
    "another model": (
        (
            a_gpu_node("gpu-1", published_card(0), SMALL),
            a_waiting_pod(units=8, annotations={"vrampack.dev/card-model": "A100,H100"}),
        ),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card of model A100 or H100.

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
Pod default/w is pending and asks for 9 units (9 GiB) on one card named GPU-1 or GPU-7.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0       15/15        -  its uuid is not requested
gpu-1     1         8/8        -  smaller than requested

0/1 nodes fit: 1 card uuid not here.
1 node has 23 units free together, but not 9 on one card that the pod may take.
Next: widen the annotation vrampack.dev/card-uuid: GPU-1 is gpu-1 GPU1, GPU-7 is on no node; none of them can be used.
""",
    ),
    "request not valid": (
        (*S1, a_waiting_pod(units="1.5")),
        """\
Pod default/w is pending and its request cannot be met.

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
Pod default/w is pending and asks for 7 units (7 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     -           -        -  its unit is 512 MiB, the cluster's is 1024 MiB; nothing is placed here until they agree

0/1 nodes fit: 1 no shareable GPU memory.
Next: repair gpu-1: its unit is 512 MiB, the cluster's is 1024 MiB; nothing is placed here until they agree.
""",
    ),
    "an annotation that cannot be read": (
        (*S1, a_node("gpu-3", "{"), a_waiting_pod()),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        -  created before the admission policy

0/1 nodes fit: 1 created before the admission policy.
Next: recreate the pod: it was created before the admission policy, so its containers do not read their cards from its \
annotations; if the new one gets the same answer, check that the policies of manifests/admission/exact are applied.
""",
    ),
    "no GPU at all": (
        (a_node("cpu-1"), a_node("cpu-2"), a_waiting_pod()),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

2 nodes have no shareable GPU memory.

0/2 nodes fit: 2 no shareable GPU memory.
Next: no node shares GPU memory (aliyun.com/gpu-mem): see that the agent runs on the GPU nodes and publishes their cards.
""",
    ),
    "no node at all": (
        (a_waiting_pod(),),
        """\
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1   0-1        7/15        1  not enough free memory

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
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

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
Pod default/w is pending and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0        3/15        5  not enough free memory
gpu-2     1        5/15        3  not enough free memory
gpu-1 may not be used by the pod: taint team=a:NoSchedule is not tolerated.

0/2 nodes fit: 1 node(s) had untolerated taint(s), 1 no card with enough free memory.
1 node has 8 units free together, but not 8 on one card that the pod may take.
Next: free 3 units on gpu-2 GPU1 (pods there: default/b 10), or add a card.
""",
    ),
    # 30 units on 2 cards
    "a legacy node": (
        (a_node("old", allocatable={"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}), a_waiting_pod(units=16)),
        """\
Pod default/w is pending and asks for 16 units (16 GiB) on one card.

NODE  CARD  FREE/TOTAL  MISSING  WHY
old    0-1       15/15        -  smaller than requested

0/1 nodes fit: 1 larger than any card.
1 node has 30 units free together, but not 16 on one card that the pod may take.
Next: ask for at most 15 units on a card, the largest there is, or take the memory from several: label aliyun.com/gpu-count: "2".
""",
    ),
}
"""A pod that fits nowhere: each reason, and the next step."""
