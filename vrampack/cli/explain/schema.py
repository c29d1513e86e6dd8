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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} {self.units}" + (" (on every card)" if self.unplaced else "")


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
        Meta(description="Units to be freed before the pod has room here; null where no freeing would help."),
    ]
    reason: Annotated[str | None, Meta(description="What docs/reasons.md calls it; null when the card would do.")]
    why: str
    pods: tuple[HolderView, ...]


class ScoreTermView(Struct, frozen=True, rename="camel"):
    """A part of a node's score."""

    name: str
    value: float


class NodeView(Struct, frozen=True, rename="camel"):
    """One node, as the extender's filter evaluates it."""

    name: str
    reason: Annotated[str | None, Meta(description="The filter's own text; null when the pod fits.")]
    never: Annotated[bool, Meta(description="Whether even the empty node would not do.")]
    problem: Annotated[str, Meta(description="Why nothing at all is placed here; empty when all is well.")]
    obstacles: Annotated[
        tuple[str, ...],
        Meta(description="What else keeps the pod away: taints, nodeSelector, a cordoned node, what kubelet offers."),
    ]
    legacy: bool
    cards: tuple[CardView, ...]
    score: Annotated[
        float | None, Meta(description="How much the policy prefers it; null when the pod does not fit.")
    ] = None
    terms: Annotated[tuple[ScoreTermView, ...], Meta(description="What the score is the sum of.")] = ()


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
    """What the pod asks."""

    resource: str
    unit_mib: Annotated[int, Meta(description="MiB of one unit.")]
    units: Annotated[int, Meta(description="Units on each card.")]
    count: Annotated[int, Meta(description="Number of cards.")]
    whole: bool
    models: tuple[str, ...]
    uuids: tuple[str, ...]
    policy: str
    problem: Annotated[str, Meta(description="Field and fix when it can never be served; empty when it is valid.")]


class HeldCardView(Struct, frozen=True, rename="camel"):
    index: int
    uuid: str | None
    units: int


class PlacementView(Struct, frozen=True, rename="camel"):
    """Where the pod is, or where it would go."""

    node: str
    cards: tuple[HeldCardView, ...]
    limits_mib: Annotated[dict[str, int], Meta(description="By container, as recorded; empty before it is bound.")]
    problem: Annotated[str, Meta(description="Why the cards are not known; empty when they are.")]


class SchedulerConditionView(Struct, frozen=True, rename="camel"):
    """What the scheduler wrote into the pod's condition PodScheduled."""

    reason: str
    message: str


class Explanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Why a pod is where it is, or why it is nowhere."""

    api_version: Literal["vrampack.dev/v1"] = API_VERSION
    kind: Literal["Explanation"] = KIND
    pod: PodView
    headline: str
    findings: tuple[str, ...]
    next: Annotated[str, Meta(description="What to do; empty when there is nothing to do.")]
    request: RequestView | None = None
    placement: Annotated[PlacementView | None, Meta(description="Where the pod is bound.")] = None
    choice: Annotated[PlacementView | None, Meta(description="Where the policy would put it now.")] = None
    scheduler: SchedulerConditionView | None = None
    nodes: Annotated[
        tuple[NodeView, ...], Meta(description="Nodes with cards, or with a problem; the nearest first.")
    ] = ()
    reasons: Annotated[dict[str, int], Meta(description="Nodes by the filter's text, all nodes of the cluster.")] = {}
    node_count: int = 0
    nodes_without_memory: Annotated[int, Meta(description="Nodes that have no cards; not among `nodes`.")] = 0
