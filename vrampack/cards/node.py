"""Cards and nodes as the ledger shows them: frozen, with what is used on each.

A `NodeFacts` is what the API server says of a node; a `Node` is the same plus what pods hold there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

InjectionMode = Literal["exact", "cdi"]
"""`exact`: the pod's environment names its cards, by admission. `cdi`: the agent hands them over at the start."""
DeviceNaming = Literal["uuid", "cdi"]
CardAction = Literal["drain", "drain_and_reset", "reset", "reboot", "human"]
"""What is to be done with a card before it is given out again, from the lightest."""


@dataclass(frozen=True, slots=True)
class CardVerdict:
    """Why a card stays out of use whatever restarts, until it is repaired or an operator heals it."""

    cause: str
    """`xid-48`, `remap-pending` and so on: `vrampack/agent/inventory/verdicts.py` lists them."""
    action: CardAction
    since: str
    """RFC 3339, UTC, to the second."""
    boot: str = ""
    """The kernel's boot id at that time; empty when it was not known."""
    is_nvml_asked: bool = False
    """Whether NVML's recovery action speaks of this cause, so that its "none" is an answer."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """One GPU, or one MIG instance, as its node publishes it."""

    index: int
    units: int
    memory_mib: int
    uuid: str | None = None
    """NVML's whole string (`GPU-..`, `MIG-..`); None where a legacy plugin does not say."""
    model: str = ""
    healthy: bool = True
    numa: int | None = None
    mig_parent: str | None = None
    reason: str = ""
    """Why it is unhealthy, for people; empty where its agent does not say."""
    verdict: CardVerdict | None = None
    """What lasts of that; None of a healthy card, and of one that heals by itself."""


@dataclass(frozen=True, slots=True)
class Share:
    """Units held on one card. A card is named by uuid, or by index where there is no uuid."""

    units: int
    uuid: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the API server says of one node, decoded. An unreadable annotation is a `problem`, never an exception."""

    name: str
    cards: tuple[CardFacts, ...] = ()
    unit_mib: int | None = None
    """The node's unit; None on legacy nodes, which have no way to say."""
    injection: InjectionMode | None = "exact"
    """None: a mode that this version does not know. Its cards are counted, and nothing new is placed on them."""
    devices: DeviceNaming = "uuid"
    legacy: bool = False
    """Read from `allocatable`: equal cards are assumed."""
    cordoned: frozenset[str] = frozenset()
    observed: Mapping[str, tuple[Share, ...]] | None = None
    """What the node's agent says pods without a readable record hold, by pod uid."""
    problem: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One card and what is held on it, in units. Never more than `units` unless someone forged or raced."""

    index: int
    units: int
    memory_mib: int
    uuid: str | None = None
    model: str = ""
    healthy: bool = True
    cordoned: bool = False
    used_units: int = 0
    free_pods: int | None = None
    """How many more pods a rule lets on it; None: no rule says."""
    tenants: frozenset[bytes] = frozenset()
    """Whose pods are on it, as digests; empty where no rule asks."""
    reserve: int | None = None
    """The number of the reserve that it belongs to."""
    numa: int | None = None
    reason: str = ""
    """Why it is unhealthy, where its agent says so."""

    @property
    def is_ruled(self) -> bool:
        """Whether rules know something of it that its memory does not tell."""
        return self.free_pods is not None or self.reserve is not None or bool(self.tenants)

    @property
    def free_units(self) -> int:
        """Never below 0: an overcommitted card is full."""
        return max(0, self.units - self.used_units)

    @property
    def is_usable(self) -> bool:
        return self.healthy and not self.cordoned

    @property
    def is_overcommitted(self) -> bool:
        return self.used_units > self.units


@dataclass(frozen=True, slots=True)
class Node:
    """One node at one moment: what fits there is a function of this value alone. Made by `build_node`."""

    name: str
    cards: tuple[Card, ...]
    unit_mib: int
    injection: InjectionMode | None
    """None: a mode that this version does not know."""
    devices: DeviceNaming
    legacy: bool
    problem: str
    """Why nothing is placed here, e.g. another unit than the cluster's; empty when all is well."""
    address: str
    largest_free_units: int
    """Free units of the usable card that has most."""
    free_units: int
    """Free units of all usable cards."""
    total_units: int
    used_units: int

    @property
    def placeable_cards(self) -> tuple[Card, ...]:
        """The cards that the checks of a request begin with: none of a node whose cards or unit are not to be trusted."""
        return () if self.problem and self.injection is not None else self.cards

    @property
    def needs_references(self) -> bool:
        """Whether a container gets cards only by its pod's annotations, to which admission wires its environment."""
        return self.injection == "exact" and not self.legacy


def build_node(facts: NodeFacts, cards: tuple[Card, ...], *, unit_mib: int) -> Node:
    """The node of `facts` with these cards; its sums are computed here, once per change."""
    free = [max(0, card.units - card.used_units) for card in cards if card.healthy and not card.cordoned]
    return Node(
        name=facts.name,
        cards=cards,
        unit_mib=facts.unit_mib or unit_mib,
        injection=facts.injection,
        devices=facts.devices,
        legacy=facts.legacy,
        problem=facts.problem or _unit_problem(facts, unit_mib),
        address=facts.address,
        largest_free_units=max(free, default=0),
        free_units=sum(free),
        total_units=sum([card.units for card in cards]),
        used_units=sum([card.used_units for card in cards]),
    )


def _unit_problem(facts: NodeFacts, unit_mib: int) -> str:
    if facts.unit_mib is None or facts.unit_mib == unit_mib:
        return ""
    return f"its unit is {facts.unit_mib} MiB, the cluster's is {unit_mib} MiB; nothing is placed here until they agree"
