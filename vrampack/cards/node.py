"""Cards and nodes as the ledger shows them: frozen, with what is used on each.

A `NodeFacts` is what the API server says about a node; a `Node` adds what pods hold there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

from vrampack.cards.amounts import Amounts, has_room_for
from vrampack.cards.request import REQUEST_WORDS, UNLISTED_WORDS, RequestWord

InjectionMode = Literal["exact", "cdi"]
"""`exact`: the pod's environment, set by admission, names its cards. `cdi`: the agent gives a container its cards at its start."""
DeviceNaming = Literal["uuid", "cdi"]
CardAction = Literal["drain", "drain_and_reset", "reset", "reboot", "human"]
"""What must be done with a card before it is used again, lightest first."""


@dataclass(frozen=True, slots=True)
class CardVerdict:
    """Why a card stays out of use, across restarts, until it is repaired or an operator heals it."""

    cause: str
    """`xid-48`, `remap-pending` and so on: `vrampack/agent/inventory/verdicts.py` lists them."""
    action: CardAction
    since: str
    """When it began: RFC 3339, UTC, to the second."""
    boot: str = ""
    """The kernel's boot id at that time; empty when it was not known."""
    is_nvml_asked: bool = False
    """Whether NVML's recovery action follows this cause, so that its "none" is evidence of a repair."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """One GPU, or one MIG instance, as its node publishes it."""

    index: int
    units: int
    memory_mib: int
    uuid: str | None = None
    """NVML's whole string (`GPU-..`, `MIG-..`); None for the cards of a legacy plugin."""
    model: str = ""
    healthy: bool = True
    numa: int | None = None
    mig_parent: str | None = None
    reason: str = ""
    """Why it is unhealthy, for people; empty if its agent does not say."""
    verdict: CardVerdict | None = None
    """The lasting cause; None for a healthy card, and for one that heals by itself."""
    instances: int | None = None
    """How many limits its node's back end can hold on it at a time; None: any number. MIG instances of a GPU share them."""
    offered: Amounts = ()
    """What it has besides memory."""

    @property
    def gpu(self) -> str | None:
        """The uuid of its GPU."""
        return self.mig_parent or self.uuid


@dataclass(frozen=True, slots=True)
class Share:
    """Units held on one card, which is named by uuid, or by index if it has none.

    `count_share_units` of `vrampack.cards.holding` says how many of the card's units of today they are.
    """

    units: int
    uuid: str | None = None
    index: int | None = None
    whole: bool = False
    """The whole card, whatever was requested."""
    card_units: int | None = None
    """The card's units when the share was given; None in records of gpushare and of older versions, and on legacy nodes."""
    limit: tuple[int, int] | None = None
    """Units and MiB of a container on the card, if the record has them and not `card_units`, which they stand for."""
    amounts: Amounts = ()
    """What is held of the card besides memory."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the API server says about one node, decoded. An unreadable annotation is a `problem`, never an exception."""

    name: str
    cards: tuple[CardFacts, ...] = ()
    unit_mib: int | None = None
    """The node's unit; None for legacy nodes, which cannot say."""
    injection: InjectionMode | None = "exact"
    """None: a mode that this version does not know. Its cards are counted, and nothing new is placed on them."""
    devices: DeviceNaming = "uuid"
    serves: frozenset[RequestWord] = UNLISTED_WORDS
    """What its agent understands of a request."""
    has_hook: bool = False
    """Whether the createRuntime hook runs there, so that each container of several that ask takes an instance of its own."""
    legacy: bool = False
    """Whether the cards are derived from `allocatable`, on the assumption that they are equal."""
    cordoned: frozenset[str] = frozenset()
    observed: Mapping[str, tuple[Share, ...]] | None = None
    """What pods without a readable record hold, according to the node's agent, by pod uid."""
    problem: str = ""
    address: str = ""
    offered_units: int | None = None
    """Units that kubelet offers in `status.allocatable`, by which the scheduler itself counts; None if unknown."""


@dataclass(frozen=True, slots=True)
class CardInstances:
    """The instances of a card's GPU: how many limits its back end can hold there, and how many pods take."""

    gpu: str | None
    most: int
    used: int = 0
    are_per_container: bool = False
    """Whether containers have some of their own; otherwise each pod takes one."""

    @property
    def free(self) -> int:
        return max(0, self.most - self.used)

    def take_instances(self, pods: Iterable[int]) -> CardInstances:
        """The same while pods are there that take so many each, where containers have some of their own."""
        used = sum(map(self.count_taken, pods))
        return self if used == self.used else CardInstances(self.gpu, self.most, used, self.are_per_container)

    def count_taken(self, instances: int) -> int:
        """How many a request takes here that takes so many where containers have some of their own."""
        return instances if self.are_per_container else 1

    def has_room_for(self, instances: int) -> bool:
        """Whether such a request finds as many free."""
        return self.free >= self.count_taken(instances)


@dataclass(frozen=True, slots=True)
class Card:
    """One card and what is held on it, in units: more than `units` only after a race or with a forged record."""

    index: int
    units: int
    memory_mib: int
    uuid: str | None = None
    model: str = ""
    healthy: bool = True
    cordoned: bool = False
    used_units: int = 0
    free_pods: int | None = None
    """How many more pods a rule allows on it; None: no rule limits them."""
    tenants: frozenset[bytes] = frozenset()
    """The tenants of the pods on it, as digests; empty if no rule asks for them."""
    reserve: int | None = None
    """The number of the reserve to which it belongs."""
    numa: int | None = None
    reason: str = ""
    """Why it is unhealthy, if its agent says so."""
    instances: CardInstances | None = None
    """None: its back end can hold any number of limits."""
    offered: Amounts = ()
    """What it has besides memory."""
    taken: Amounts = ()
    """What is held of that."""

    @property
    def is_ruled(self) -> bool:
        """Whether a rule may refuse it to a request for which it has memory."""
        return self.free_pods is not None or self.reserve is not None or bool(self.tenants)

    @property
    def free_units(self) -> int:
        """Free units, never below 0: an overcommitted card is full."""
        return max(0, self.units - self.used_units)

    def has_room_for(self, amounts: Amounts) -> bool:
        """Whether so much is free besides memory."""
        return has_room_for(amounts, offered=self.offered, taken=self.taken)

    @property
    def is_usable(self) -> bool:
        return self.healthy and not self.cordoned

    @property
    def is_overcommitted(self) -> bool:
        return self.used_units > self.units


class AgentTerms(NamedTuple):
    """What a node's agent asks of any request, whichever cards it is for."""

    is_open: bool
    """Whether this version knows how containers get cards there."""
    unserved_words: frozenset[RequestWord]
    """What the agent does not understand of requests."""
    needs_references: bool
    """Whether containers get their cards only through environment variables that refer to their pod's annotations."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node at one moment: what fits there depends on this value alone. Built by `build_node`."""

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
    """Free units of the usable card that has the most."""
    free_units: int
    """Free units of all usable cards."""
    total_units: int
    used_units: int
    unserved_words: frozenset[RequestWord] = frozenset()
    counts_instances: bool = False
    """Whether the back end can hold only so many limits on some card."""

    @property
    def placeable_cards(self) -> tuple[Card, ...]:
        """The cards with which the checks of a request begin: none if the node's cards or unit cannot be trusted."""
        return () if self.problem and self.injection is not None else self.cards

    @property
    def needs_references(self) -> bool:
        return self.injection == "exact" and not self.legacy

    @property
    def terms(self) -> AgentTerms:
        return AgentTerms(self.injection is not None, self.unserved_words, self.needs_references)


_get_instances = attrgetter("instances")


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
        problem=find_node_problem(facts, unit_mib=unit_mib),
        address=facts.address,
        largest_free_units=max(free, default=0),
        free_units=sum(free),
        total_units=sum([card.units for card in cards]),
        used_units=sum([card.used_units for card in cards]),
        unserved_words=REQUEST_WORDS - facts.serves,
        counts_instances=any(map(_get_instances, cards)),
    )


def find_node_problem(facts: NodeFacts, *, unit_mib: int) -> str:
    """Why nothing is placed on this node, in a cluster that counts in this unit; empty when all is well."""
    if facts.problem or facts.unit_mib is None or facts.unit_mib == unit_mib:
        return facts.problem
    return f"its unit is {facts.unit_mib} MiB, the cluster's is {unit_mib} MiB; nothing is placed here until they agree"
