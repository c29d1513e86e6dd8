"""What the real and the embedded scheduler are both put through: nodes, pods, a script for the extender, and waits.

A step is one of
    ("node" | "pod", name, how)         create it
    ("patch" | "patch status", name, p) merge into a pod;  ("patch node", name, p)
    ("delete", name)                    delete a pod at once
    ("rules", *rules)                   what the extender answers from now on
    ("bound", *names)                   wait until these pods are
    ("failed", name, reason)            wait until the pod's condition says why it is not placed
    ("says", name, message)             wait until it ends in that
    ("asked", name, count)              wait until filter has been answered `count` times about the pod
    ("event", name, reason)             wait until the scheduler has written that event about the pod
    ("open", count)                     wait until `count` calls are open at the extender
A pod that the extender refuses is filtered twice and then no more until something changes: `("asked", name, 2)`
shows that it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.fakes.scripted_extender import ScriptedRule

RESOURCE = "example.com/gpu"
"""Not the shipped one: neither admission nor the auditor has an interest in these pods."""
SCHEDULER = "vrampack"

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  qps: 2000
  burst: 4000
profiles:
  - schedulerName: vrampack
    percentageOfNodesToScore: 100
    plugins:
      score:
        disabled:
          - name: NodeResourcesFit
          - name: NodeResourcesBalancedAllocation
          - name: ImageLocality
extenders:
  - urlPrefix: {url}
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: 10
    bindVerb: bind
    nodeCacheCapable: true
    httpTimeout: 1s
    managedResources:
      - name: example.com/gpu
        ignoredByScheduler: false
    ignorable: false
"""
"""As it ships, but for the resource, the time-out, and no waiting for a lease."""

IMAGE = "example.com/cuda:1"

Json: TypeAlias = Any  # Any: parts of API objects
Step: TypeAlias = tuple[Any, ...]
"""Any: see above; `tests/support/scheduler_recordings/player.py` reads them."""


@dataclass(frozen=True, slots=True)
class SchedulerScenario:
    """What happens, one step after another."""

    steps: Callable[[], Sequence[Step]]
    """Made for each run of the scenario, because rules count down."""
    nodes: Mapping[str, Json]
    """Created before the scheduler starts, so that it has seen all of them when the first pod comes."""
    ties: frozenset[str] = frozenset()
    """Pods whose node the real scheduler chooses at random: their nodes are not compared."""


def gpus(units: int, **more: Json) -> Json:
    """A node with so many units. `more` is of its spec, but for `labels` and `allocatable`."""
    labels, extra = more.pop("labels", {}), more.pop("allocatable", {})
    has = {"cpu": "8", "memory": "64Gi", "pods": "110", RESOURCE: str(units)} | extra
    return {"metadata": {"labels": labels}, "spec": more, "status": {"capacity": has, "allocatable": has}}


def asks(units: int | None, **spec: Json) -> Json:
    """The spec of a pod of one container; None: it does not name the resource at all."""
    own = {"name": "main", "image": IMAGE, "resources": _resources(units)}
    return {"schedulerName": SCHEDULER, "terminationGracePeriodSeconds": 0, "containers": [own]} | spec


def _init(name: str, units: int, **more: str) -> Json:
    return {"name": name, "image": IMAGE, "resources": _resources(units)} | more


def _resources(units: int | None) -> Json:
    limits = {} if units is None else {RESOURCE: str(units)}
    return {"limits": limits, "requests": {"cpu": "100m"} | limits}


ONE = {"n1": gpus(16)}
THREE = {name: gpus(16) for name in ("n1", "n2", "n3")}


def _placed(*rules: ScriptedRule, nodes: Mapping[str, Json] = ONE, ties: str = "") -> SchedulerScenario:
    """One pod that is bound in the end, though a rule may make it fail before."""

    def steps() -> list[Step]:
        return [("rules", *map(copy, rules)), ("pod", "a", asks(4)), ("bound", "a")]

    return SchedulerScenario(steps, nodes, frozenset(ties))


def _not_placed(
    *rules: ScriptedRule, nodes: Mapping[str, Json] = THREE, reason: str = "Unschedulable"
) -> SchedulerScenario:
    """One pod that is not bound, and told why."""

    def steps() -> list[Step]:
        return [("rules", *map(copy, rules)), ("pod", "a", asks(4)), ("failed", "a", reason)]

    return SchedulerScenario(steps, nodes)


def _wakes(*change: Step) -> SchedulerScenario:
    """Pod b fits nowhere beside pod a, until that change."""
    return SchedulerScenario(
        lambda: [
            ("pod", "a", asks(4)),
            ("bound", "a"),
            ("rules", ScriptedRule("filter", "b", refuse={"*": "no card with enough free memory"})),
            ("pod", "b", asks(4)),
            ("failed", "b", "Unschedulable"),
            ("asked", "b", 2),
            ("rules",),
            *change,
            ("bound", "b"),
        ],
        ONE,
    )


TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
TAINTED = {
    "n1": gpus(16, taints=[TAINT]),
    "n2": gpus(16, taints=[TAINT | {"value": "web"}]),
    "n3": gpus(16, taints=[TAINT | {"effect": "NoExecute"}]),
    "n4": gpus(16, unschedulable=True),
}
TOLERATIONS = [
    {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
]
UNEVEN = ScriptedRule(
    "prioritize", answer=[{"Host": "n1", "Score": 1}, {"Host": "n2", "Score": 10}, {"Host": "n3", "Score": 5}]
)
FULL = "no card with enough free memory"

PLACED = {
    "one node": _placed(),
    "three nodes": _placed(UNEVEN, nodes=THREE),
    "scores above ten": _placed(
        ScriptedRule("prioritize", answer=[{"host": "n3", "score": 11}, {"Host": "n1", "Score": 10}]), nodes=THREE
    ),
    "scores given twice are added": _placed(
        ScriptedRule("prioritize", answer=[{"Host": "n1", "Score": 8}, *[{"Host": "n2", "Score": 5}] * 2]), nodes=THREE
    ),
    "filter leaves one of three": _placed(
        ScriptedRule("filter", refuse={"n1": "kept free", "n3": "no card"}), nodes=THREE
    ),
    "filter answers in small letters": _placed(
        ScriptedRule("filter", answer={"nodenames": ["n2"], "FAILEDNODES": None}), nodes=THREE
    ),
    "prioritize status 500": _placed(ScriptedRule("prioritize", status=500), nodes=THREE, ties="a"),
    "prioritize answers a fraction": _placed(
        ScriptedRule("prioritize", text='[{"Host":"n1","Score":1.5}]'), nodes=THREE, ties="a"
    ),
    "prioritize is slow": _placed(ScriptedRule("prioritize", hang_seconds=1.5), nodes=THREE, ties="a"),
    "bind answers {}": _placed(ScriptedRule("bind", answer={})),
}
"""At the first attempt."""

FAILING = {
    "filter status 500": _placed(ScriptedRule("filter", status=500, times=1)),
    "filter status 201": _placed(ScriptedRule("filter", status=201, times=1)),
    "filter error": _placed(ScriptedRule("filter", answer={"Error": "ledger is stale"}, times=1)),
    "filter names a stranger": _placed(ScriptedRule("filter", answer={"NodeNames": ["n9"]}, times=1)),
    "filter is cut": _placed(ScriptedRule("filter", is_cut=True, times=1)),
    "filter answers nothing": _placed(ScriptedRule("filter", text="", times=1)),
    "filter is slow": _placed(ScriptedRule("filter", hang_seconds=1.5, times=1)),
    "bind error": _placed(ScriptedRule("bind", answer={"Error": FULL}, times=1)),
    "bind status 500": _placed(ScriptedRule("bind", status=500, times=1)),
    "bind is cut": _placed(ScriptedRule("bind", is_cut=True, times=1)),
    "bind answers nothing": _placed(ScriptedRule("bind", text="", times=1)),
    "filter error for ever": _not_placed(
        ScriptedRule("filter", answer={"Error": "ledger is stale"}), nodes=ONE, reason="SchedulerError"
    ),
    "filter status 500 for ever": _not_placed(ScriptedRule("filter", status=500), nodes=ONE, reason="SchedulerError"),
    "bind error for ever": _not_placed(
        ScriptedRule("bind", answer={"Error": FULL}), nodes=ONE, reason="SchedulerError"
    ),
    "bind error although it bound": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("bind", answer={"Error": "no answer from the API"}, binds=True)),
            ("pod", "a", asks(4)),
            ("event", "a", "FailedScheduling"),
        ],
        ONE,
    ),
    "bind error frees what was assumed": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("bind", "a", answer={"Error": FULL}, hang_seconds=0.4)),
            ("pod", "a", asks(16)),
            ("open", 1),
            ("pod", "b", asks(16)),
            ("bound", "b"),
            ("failed", "a", "Unschedulable"),
        ],
        ONE,
    ),
}
"""Attempts that break."""

REFUSED = {
    "filter answers {}": _not_placed(ScriptedRule("filter", answer={})),
    "filter answers null": _not_placed(ScriptedRule("filter", text="null")),
    "filter leaves none without a word": _not_placed(ScriptedRule("filter", answer={"NodeNames": []})),
    "filter answers of other nodes too": _not_placed(
        ScriptedRule("filter", answer={"NodeNames": [], "FailedNodes": {"n1": "full", "n9": "full"}})
    ),
    "filter gives an empty reason": _not_placed(ScriptedRule("filter", refuse={"n1": "", "*": "full"})),
    "never here": _not_placed(
        ScriptedRule("filter", answer={"FailedAndUnresolvableNodes": dict.fromkeys(THREE, "larger than any card")})
    ),
    "reasons of both kinds": _not_placed(
        ScriptedRule(
            "filter",
            answer={
                "FailedNodes": {"n1": "full", "n2": "full"},
                "FailedAndUnresolvableNodes": {"n2": "larger than any card", "n3": "larger than any card"},
            },
        )
    ),
    "mixed reasons": _not_placed(
        ScriptedRule("filter", refuse={"n1": FULL, "*": "kept free by policy"}),
        nodes=THREE | {"n4": gpus(1), "n5": gpus(16, taints=[TAINT])},
    ),
    "own filters alone": SchedulerScenario(
        lambda: [("pod", "a", asks(4, nodeSelector={"zone": "a"})), ("failed", "a", "Unschedulable")],
        {
            "n1": gpus(16, unschedulable=True),
            "n2": gpus(16, taints=[TAINT], labels={"zone": "b"}),
            "n3": gpus(1, taints=[TAINT | {"effect": "NoExecute"}]),  # full as well: the first filter speaks
            "n4": gpus(16),
            "n5": gpus(1, labels={"zone": "a"}, allocatable={"cpu": "50m", "pods": "0"}),
        },
    ),
    "no nodes": _not_placed(nodes={}),
    "totals exhausted": SchedulerScenario(
        lambda: [("pod", "a", asks(4)), ("bound", "a"), ("pod", "b", asks(4)), ("failed", "b", "Unschedulable")],
        {"n1": gpus(4)},
    ),
}
"""Attempts that end in a refusal."""

WOKEN = {
    "a delete wakes": _wakes(("delete", "a")),
    "a bound pod's annotation wakes": _wakes(("patch", "a", {"metadata": {"annotations": {"any": "1"}}})),
    "another pod's bind wakes": _wakes(("pod", "c", asks(None)), ("bound", "c")),
    "a node's annotation wakes": _wakes(("patch node", "n1", {"metadata": {"annotations": {"cards": "more"}}})),
    "a pod's own annotation wakes": _wakes(("patch status", "b", {"metadata": {"annotations": {"kick": "1"}}})),
    "a pod's own annotation wakes no other": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("filter", refuse={"*": "no card"})),
            *[("pod", name, asks(4)) for name in ("a", "b")],
            *[("failed", name, "Unschedulable") for name in ("a", "b")],
            *[("asked", name, 2) for name in ("a", "b")],
            ("rules", ScriptedRule("filter", refuse={"*": "still no card"})),
            ("patch status", "b", {"metadata": {"annotations": {"kick": "1"}}}),
            ("says", "b", "still no card."),
            ("asked", "b", 4),
        ],
        ONE,
    ),
    "a new node wakes": SchedulerScenario(
        lambda: [
            ("pod", "a", asks(4)),
            ("failed", "a", "Unschedulable"),
            ("node", "n2", gpus(8)),
            ("bound", "a"),
        ],
        {"n1": gpus(2)},
    ),
    "totals exhausted until another is deleted": SchedulerScenario(
        lambda: [
            ("pod", "a", asks(4)),
            ("bound", "a"),
            ("pod", "b", asks(4)),
            ("failed", "b", "Unschedulable"),
            ("delete", "a"),
            ("bound", "b"),
        ],
        {"n1": gpus(4)},
    ),
}
"""Refused pods that are tried again."""

OTHERS = {
    "without the resource": SchedulerScenario(lambda: [("pod", "a", asks(None)), ("bound", "a")], ONE),
    "none of the resource": SchedulerScenario(lambda: [("pod", "a", asks(0)), ("bound", "a")], ONE),
    "another scheduler's pod": SchedulerScenario(
        lambda: [("pod", "a", asks(4, schedulerName="someone-else")), ("pod", "b", asks(4)), ("bound", "b")], ONE
    ),
    "a slow bind": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("bind", "a", hang_seconds=0.6)),
            ("pod", "a", asks(8)),
            ("pod", "b", asks(8)),
            ("bound", "a", "b"),
        ],
        {"n1": gpus(8), "n2": gpus(8)},
    ),
    "priority goes first": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("filter", "a", hang_seconds=0.6), *_slower_binds("a", "high", "low")),
            ("pod", "a", asks(1)),
            ("open", 1),
            ("pod", "low", asks(1)),
            ("pod", "high", asks(1, priority=1000)),
            ("bound", "a", "low", "high"),
        ],
        ONE,
    ),
    "first come, first served": SchedulerScenario(
        lambda: [
            ("rules", ScriptedRule("filter", "c", hang_seconds=0.6), *_slower_binds("c", "b", "a")),
            ("pod", "c", asks(1)),
            ("open", 1),
            ("pod", "b", asks(1)),
            ("pod", "a", asks(1)),
            ("bound", "a", "b", "c"),
        ],
        ONE,
    ),
    "tolerated taints": SchedulerScenario(
        lambda: [("pod", "a", asks(4, tolerations=TOLERATIONS)), ("bound", "a")], TAINTED
    ),
    "scheduling gate": SchedulerScenario(
        lambda: [
            ("pod", "gated", asks(4, schedulingGates=[{"name": "example.com/hold"}])),
            ("pod", "a", asks(4)),
            ("bound", "a"),
            ("patch", "gated", {"spec": {"schedulingGates": None}}),
            ("bound", "gated"),
        ],
        ONE,
    ),
    # 2 of the sidecar stay, beside them 4 and later 1: 6 at the peak
    "init containers and sidecars": SchedulerScenario(
        lambda: [
            ("pod", "a", asks(1, initContainers=[_init("beside", 2, restartPolicy="Always"), _init("before", 4)])),
            ("bound", "a"),
        ],
        {"n1": gpus(5), "n2": gpus(6)},
    ),
}
"""Which pods are sent at all, in which order, and to which nodes."""

SCENARIOS: dict[str, SchedulerScenario] = PLACED | FAILING | REFUSED | WOKEN | OTHERS


def _slower_binds(*pods: str) -> list[ScriptedRule]:
    """Binds that end one after another, after all filters."""
    return [ScriptedRule("bind", pod, hang_seconds=0.2 * place) for place, pod in enumerate(pods, start=1)]
