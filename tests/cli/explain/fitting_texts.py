"""What explain prints of pods that wait although they would fit, by case: the objects of the cluster, and the text."""

from __future__ import annotations

from tests.cli.explain.objects import (
    UNSCHEDULABLE,
    Object,
    a_bound_pod,
    a_gpu_node,
    a_waiting_pod,
)
from tests.cli.explain.scenes import HOLDS_MORE, RECORDED, S1, WHOLE
from tests.support.manifest_builders import published_card

GROUPED = {"scheduling.x-k8s.io/pod-group": "g"}
PREEMPTING = {"type": "vrampack.dev/Preempting", "status": "True", "message": "gpu-1"}
SAID = "0/1 nodes are available: 1 no card with enough free memory."
FITTING: dict[str, tuple[tuple[Object, ...], str]] = {
    "no scheduler has looked at it": (
        (*S1, a_waiting_pod(units=7)),
        """\
Pod default/w is pending and asks for 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 tie-breaks and rounding.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    "no scheduler has looked, and another name": (
        (*S1, a_waiting_pod(units=7, spec={"schedulerName": "default-scheduler"})),
        """\
Pod default/w is pending and asks for 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 tie-breaks and rounding.
Next: no scheduler has looked at it yet: see that one named default-scheduler runs; its schedulerName is default-scheduler, the pods that the extender bound came through vrampack.
""",
    ),
    "another scheduler than the one that calls": (
        (*S1, *RECORDED, a_waiting_pod(units=4, spec={"schedulerName": "other"}, said=UNSCHEDULABLE)),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        6/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -11.17 = -10.4 memory left unusable + -0.7689 tie-breaks and rounding.
Scheduler other says: 0/9 nodes are available: 9 of the scheduler's own words.
Next: the scheduler's message above says what else it lacks; its schedulerName is other, the pods that the extender bound came through vrampack.
""",
    ),
    "whole cards as requested, not by configuration": (
        (a_gpu_node("gpu-1"), a_gpu_node("gpu-3"), HOLDS_MORE, a_waiting_pod(units=4, labels=WHOLE)),
        """\
Pod default/w is pending and asks for a whole card of at least 4 units (4 GiB).

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-3     0       15/15        0  fits
gpu-1     0        0/15       15  not empty

1/2 nodes fit: 1 no empty card.
Policy tessellate would take gpu-3 GPU0: score -0.02222 = -0.02222 tie-breaks and rounding.
The configuration that was read does not set rules.whole_cards, and as-requested holds because pod default/old holds 15 units and asks for 4: set it to paid or as-requested.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    # Of which one is checked here, and gone.
    "the scheduler's own reasons": (
        (
            *S1,
            a_waiting_pod(
                units=7,
                said="0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy existing pods anti-affinity rules.",
                spec={
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                    "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
                },
            ),
        ),
        """\
Pod default/w is pending and asks for 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 tie-breaks and rounding.
Not checked here: spec.topologySpreadConstraints, spec.volumes[data].persistentVolumeClaim.
Scheduler vrampack says: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy existing pods anti-affinity rules.
Next: the scheduler's message above says what else it lacks.
""",
    ),
    "room has come since": (
        (*S1, a_waiting_pod(units=7, said=f"{SAID} preemption: 0/1 nodes.")),
        """\
Pod default/w is pending and asks for 7 units (7 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -0.02222 = -0.02222 tie-breaks and rounding.
Scheduler vrampack says: 0/1 nodes are available: 1 no card with enough free memory. preemption: 0/1 nodes.
Next: wait: there is room since its last attempt, and the scheduler tries again within five minutes.
""",
    ),
    "held back by gates": (
        (*S1, a_waiting_pod(units=4, spec={"schedulingGates": [{"name": "quota"}]})),
        """\
Pod default/w is held back by its scheduling gates and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 memory left unusable + -0.6279 tie-breaks and rounding.
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
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-2     0       15/15        0  fits
gpu-1 may not be used by the pod: taint team:NoSchedule is not tolerated.

1/2 nodes fit: 1 node(s) had untolerated taint(s).
Policy tessellate would take gpu-2 GPU0: score -69.61 = -57.2 memory left unusable + -11.8 opening another card + -0.6089 tie-breaks and rounding.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    "held back by gates, and no room": (
        (*S1, a_waiting_pod(units=8, spec={"schedulingGates": [{"name": "quota"}]})),
        """\
Pod default/w is held back by its scheduling gates and asks for 8 units (8 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        1  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
Next: its scheduling gates hold it back: quota; whatever set them must remove them. Then: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4), or add a card.
""",
    ),
    "a preemption is under way": (
        (*S1, a_waiting_pod(units=4, status={"nominatedNodeName": "gpu-1"})),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 memory left unusable + -0.6279 tie-breaks and rounding.
Next: wait: pods of lower priority are leaving gpu-1 for it.
""",
    ),
    # 15 - 8 = 7 free; a pod of lower priority is leaving, and so nothing fits
    "pods are leaving for it, by card": (
        (
            a_gpu_node("gpu-1"),
            a_bound_pod("a", "gpu-1", {0: 8}, deletionTimestamp="2026-01-01T00:00:00Z"),
            a_waiting_pod(units=12, status={"conditions": [PREEMPTING]}),
        ),
        """\
Pod default/w is pending and asks for 12 units (12 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        5  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
Next: wait: pods of lower priority are leaving gpu-1 for it.
""",
    ),
    # 15 - 8 = 7 free, of which 4 are kept for another pod
    "another pod has a place that is not bound": (
        (
            *S1,
            a_waiting_pod("late", 4, labels=GROUPED, status={"nominatedNodeName": "gpu-1"}),
            a_waiting_pod(units=4, spec={"priority": 7}),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        3/15        1  not enough free memory

0/1 nodes fit: 1 no card with enough free memory.
Next: free 1 unit on gpu-1 GPU0 (pods there: default/app-0 4, default/app-1 4, default/late 4 (not bound yet)), or add a card.
""",
    ),
    "evicted for another pod of a lower priority": (
        (
            *S1,
            a_waiting_pod("lower", 4, status={"nominatedNodeName": "gpu-1"}),
            a_waiting_pod(units=4, spec={"priority": 7}),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 memory left unusable + -0.6279 tie-breaks and rounding.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
    "its group is refused": (
        (*S1, a_waiting_pod(units=4, labels=GROUPED, said="0/1 nodes are available: 1 its group does not fit.")),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 memory left unusable + -0.6279 tie-breaks and rounding.
Scheduler vrampack says: 0/1 nodes are available: 1 its group does not fit.
Next: its group cannot start: the pod's event GPUMemoryGroupDoesNotFit says for how many of its pods there are cards; free cards for the others, or make the group smaller.
""",
    ),
    "it waits for its group": (
        (
            *S1,
            a_waiting_pod(units=4, labels=GROUPED, status={"nominatedNodeName": "gpu-1"}),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on one card.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1     0        7/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0: score -16.23 = -15.6 memory left unusable + -0.6279 tie-breaks and rounding.
Next: wait: it goes to gpu-1 once its volumes, claims and group are ready, or once pods of lower priority have left for it.
""",
    ),
    "two cards": (
        (
            a_gpu_node("gpu-1", published_card(0), published_card(1)),
            a_waiting_pod(units=8, labels={"aliyun.com/gpu-count": "2"}),
        ),
        """\
Pod default/w is pending and asks for 4 units (4 GiB) on each of 2 cards.

NODE   CARD  FREE/TOTAL  MISSING  WHY
gpu-1   0-1       15/15        0  fits

1/1 nodes fit.
Policy tessellate would take gpu-1 GPU0 and GPU1: score -138.6 = -114.4 memory left unusable + -23.6 opening another card + -0.6315 tie-breaks and rounding.
Next: no scheduler has looked at it yet: see that one named vrampack runs.
""",
    ),
}
"""A pod that waits although it would fit."""
