"""What an explanation is: one value that the table, the JSON and the YAML show.

`docs/schemas/explanation.v1.json` is the schema of these classes; a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

API_VERSION: Literal["vrampack.dev/v1"] = "vrampack.dev/v1"
KIND: Literal["Explanation"] = "Explanation"

PodState = Literal["asks-nothing", "finished", "bound", "deleting", "gated", "pending"]


class HolderView(Struct, frozen=True, rename="camel"):
    """A pod that holds memory of a card."""

    namespace: str
    name: str
    units: int
    unplaced: Annotated[str, Meta(description="Why it counts on every card of its node; empty when it does not.")]
    bound: Annotated[
        bool, Meta(description="False: its place is kept although it is not bound yet; the card is then a guess.")
    ] = True

    def __str__(self) -> str:
        remarks = (" (on every card)" if self.unplaced else "") + ("" if self.bound else " (not bound yet)")
        return f"{self.namespace}/{self.name} {self.units}{remarks}"


class CardView(Struct, frozen=True, rename="camel"):
    """One card, as the pod finds it."""

    index: int
    uuid: str | None
    model: str
    healthy: bool
    cordoned: bool
    free_units: int
    total_units: int
    missing_units: Annotated[
        int | None,
        Meta(description="Units that must be freed before the pod fits; null if freeing would not help."),
    ]
    reason: Annotated[
        str | None, Meta(description="Why the card does not fit, as in docs/reasons.md; null if it fits.")
    ]
    why: str
    pods: tuple[HolderView, ...]
    free_instances: Annotated[
        int | None, Meta(description="How many more limits its back end can hold on it; null if any number.")
    ] = None


class ScoreTermView(Struct, frozen=True, rename="camel"):
    """A part of a node's score."""

    name: str
    value: float


class NodeView(Struct, frozen=True, rename="camel"):
    """One node, as the extender's filter evaluates it."""

    name: str
    reason: Annotated[str | None, Meta(description="Why the filter rejects it; null if the pod fits.")]
    never: Annotated[bool, Meta(description="Whether the pod would not fit even if the node were empty.")]
    problem: Annotated[str, Meta(description="Why no pod at all is placed here; empty if there is no problem.")]
    obstacles: Annotated[
        tuple[str, ...],
        Meta(
            description="What else keeps the pod away: taints, nodeSelector, node affinity, a cordoned node, CPU, what kubelet offers."
        ),
    ]
    legacy: bool
    cards: tuple[CardView, ...]
    score: Annotated[
        float | None,
        Meta(description="How much the policy prefers it; null if the pod does not fit or there are obstacles."),
    ] = None
    terms: Annotated[tuple[ScoreTermView, ...], Meta(description="The terms that add up to the score.")] = ()
    excluded: Annotated[
        bool, Meta(description="Whether labels or taints keep the pod away, whatever runs on the node.")
    ] = False
    obstacle_reasons: Annotated[
        tuple[str, ...], Meta(description="Of each of the obstacles, in the scheduler's words.")
    ] = ()


class PodView(Struct, frozen=True, rename="camel"):
    """The pod that is explained."""

    namespace: str
    name: str
    uid: str
    state: PodState
    phase: str
    scheduler_name: str
    scheduling_gates: tuple[str, ...]
    deleting: bool
    nominated_node_name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequestView(Struct, frozen=True, rename="camel"):
    """What the pod requests."""

    resource: str
    unit_mib: Annotated[int, Meta(description="MiB of one unit.")]
    units: Annotated[int, Meta(description="Units on each card.")]
    count: Annotated[int, Meta(description="Number of cards.")]
    whole: bool
    models: tuple[str, ...]
    uuids: tuple[str, ...]
    policy: str
    problem: Annotated[
        str, Meta(description="The field and the fix if the request can never be met; empty if it is valid.")
    ]


class HeldCardView(Struct, frozen=True, rename="camel"):
    index: int
    uuid: str | None
    units: int


class PlacementView(Struct, frozen=True, rename="camel"):
    """Where the pod is, or where it would go."""

    node: str
    cards: tuple[HeldCardView, ...]
    limits_mib: Annotated[
        dict[str, int], Meta(description="Limits by container, as recorded; empty until the pod is bound.")
    ]
    problem: Annotated[str, Meta(description="Why the cards are not known; empty when they are.")]


class SchedulerConditionView(Struct, frozen=True, rename="camel"):
    """What the scheduler wrote into the pod's condition PodScheduled."""

    reason: str
    message: str


class ActionView(Struct, frozen=True, rename="camel"):
    """One thing to do, as docs/explain.md lists them."""

    kind: Literal[
        "free", "uncordon", "label", "remove-taint", "remove-gates", "change-request", "add-node", "wait", "none"
    ]
    node: str = ""
    card: Annotated[int | None, Meta(description="The card of the node; null for the node itself.")] = None
    key: Annotated[str, Meta(description="Of a label or taint, or a resource; empty for units of the card.")] = ""
    value: Annotated[str, Meta(description="Of a label; of a taint its effect.")] = ""
    amount: Annotated[int, Meta(description="Units, thousandths of CPU, or as many of another resource.")] = 0
    count: Annotated[int, Meta(description="Cards of a node.")] = 0


class Explanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Why a pod is on its node, or why it is on none."""

    api_version: Literal["vrampack.dev/v1"] = API_VERSION
    kind: Literal["Explanation"] = KIND
    pod: PodView
    headline: str
    findings: tuple[str, ...]
    next: Annotated[str, Meta(description="What to do; empty when there is nothing to do.")]
    actions: Annotated[
        tuple[ActionView, ...],
        Meta(description="The same for programs: all of it together lets the pod fit the nearest node."),
    ] = ()
    request: RequestView | None = None
    placement: Annotated[PlacementView | None, Meta(description="Where the pod is bound.")] = None
    choice: Annotated[PlacementView | None, Meta(description="Where the policy would put it now.")] = None
    scheduler: SchedulerConditionView | None = None
    nodes: Annotated[
        tuple[NodeView, ...],
        Meta(description="Nodes with cards or with a problem; those on which least is missing first."),
    ] = ()
    reasons: Annotated[
        dict[str, int], Meta(description="How many nodes of the cluster the filter rejects, by reason.")
    ] = {}
    obstacle_counts: Annotated[
        dict[str, int],
        Meta(
            description="How many nodes with cards the scheduler's own filters reject, by the first reason in its words."
        ),
    ] = {}
    unchecked: Annotated[
        tuple[str, ...],
        Meta(description="Fields of the pod by which the scheduler chooses and that are not checked here."),
    ] = ()
    node_count: int = 0
    nodes_without_memory: Annotated[int, Meta(description="How many nodes have no cards; `nodes` leaves them out.")] = 0


class WorkloadView(Struct, frozen=True, rename="camel"):
    kind: str
    namespace: str
    name: str
    wanted: Annotated[int, Meta(description="How many pods it wants at a time.")]


class WorkloadPodView(Struct, frozen=True, rename="camel"):
    """A pod of the workload that has not finished."""

    name: str
    state: Literal["bound", "deleting", "gated", "pending"]
    node: str


class WorkloadExplanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Which pods a workload has, why it has no more, and why one of them waits."""

    api_version: Literal["vrampack.dev/v1"] = API_VERSION
    kind: Literal["WorkloadExplanation"] = "WorkloadExplanation"
    workload: WorkloadView
    headline: str
    pods: tuple[WorkloadPodView, ...]
    findings: Annotated[tuple[str, ...], Meta(description="Why a pod could not be created, in the API server's words.")]
    next: Annotated[str, Meta(description="What to do about pods that do not exist; empty when none is missing.")]
    waiting: Annotated[Explanation | None, Meta(description="Of the pod that has waited longest.")]
