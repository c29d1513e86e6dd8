"""The one table of reasons for which a request does not fit, in the order in which they are checked.

A row is a member of `UnfitReason`: the text, and what must hold. The first row that does not hold is the verdict: of a
node and of a card (`vrampack.cards.fit`), and of a fit class (`vrampack.cards.shape`).
`docs/reasons.md` lists the texts; a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Literal, Protocol, Self

from vrampack.cards.amounts import has_room_for
from vrampack.cards.node import AgentTerms, Card
from vrampack.cards.request import CardRequest

RequestForm = Literal["one card", "several cards", "whole cards"]
"""What a request wants from a node: each form has its own text for a lack of room."""

ComparedUnits = Literal["units", "free_units"]
"""Which units of a card, as `Card` names them, a check compares with those of a request."""


class CardSelector(Protocol):
    """Selects the cards that pass a check."""

    def __call__(self, cards: Sequence[Card], request: CardRequest, /) -> Sequence[Card]: ...


CheckOccasion = Literal[
    "request not plain",
    "injection not known",
    "words not served",
    "references missing",
    "under rules",
    "instances counted",
    "more than memory asked for",
]
"""When a row is checked that is not always checked: otherwise it could not fail."""


@dataclass(frozen=True, slots=True)
class FitCheck:
    """What must hold for a node: enough of the cards that passed every row above pass this one as well."""

    select_cards: CardSelector
    compares: ComparedUnits | None = None
    """Selects the cards of which these are at least the request's units; None: what the request asks of a card decides."""
    needs_one_card: bool = False
    """Whether one card is enough; otherwise as many must pass as the request asks for."""
    only_for: RequestForm | None = None
    """The one form of request that is checked; None: every request is."""
    only_when: CheckOccasion | None = None
    """The one occasion on which it is checked; None: always."""
    is_unresolvable: bool = False
    """Whether the check fails on the same node when it is empty and healthy, so that no eviction helps."""
    must_be_paid: bool = False
    """Whether the request must also pay for enough of the cards that pass."""


def _select_with_memory(cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if card.units > 0]


def _select_large_enough(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """The cards that could hold the request if they were empty. Even a request of no units needs a card that has units."""
    payment = request.payment
    units = (request.units if payment is None else payment.least_units) or 1
    return [card for card in cards if card.units >= units]


def _select_all(cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    """All: the row above has selected the cards, this row counts them."""
    return cards


def _select_of_model(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    return cards if request.models is None else [card for card in cards if card.model in request.models]


def _select_by_uuid(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    return cards if request.uuids is None else [card for card in cards if card.uuid in request.uuids]


def _select_if_valid(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    return cards if request.is_valid else ()


def _select_none(_cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    return ()


def _select_with_free_units(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    units = request.units
    return [card for card in cards if card.free_units >= units]


def _select_empty(cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if card.used_units == 0]


def _select_offering(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if has_room_for(request.amounts, offered=card.offered, taken=())]


def _select_with_amounts(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """The cards that have all free that is asked for besides memory."""
    return [card for card in cards if card.has_room_for(request.amounts)]


def _select_usable(cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if card.is_usable]


def _select_permitted(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    rules = request.rules
    return cards if rules is None or rules.models is None else [card for card in cards if card.model in rules.models]


def _select_unreserved(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """The cards that belong to no reserve, or to one that the request may use."""
    reserves = () if request.rules is None else request.rules.reserves
    return [card for card in cards if card.reserve is None or card.reserve in reserves]


def _select_shareable(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    """The cards without pods, and those with pods of the request's own tenant only."""
    tenant = None if request.rules is None else request.rules.tenant
    if tenant is None:
        return cards
    own = frozenset((tenant,) if tenant else ())
    return [card for card in cards if card.tenants <= own]


def _select_uncrowded(cards: Sequence[Card], _request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if card.free_pods is None or card.free_pods > 0]


def _select_with_instances(cards: Sequence[Card], request: CardRequest) -> Sequence[Card]:
    return [card for card in cards if card.instances is None or card.instances.has_room_for(request.instances)]


class UnfitReason(Enum):
    """The table. The scheduler groups equal texts in the pod's event, so they carry no names and no numbers."""

    NO_MEMORY = (
        "no shareable GPU memory",
        FitCheck(_select_with_memory, needs_one_card=True, is_unresolvable=True),
    )
    UNKNOWN_INJECTION = (
        "injection mode not known",
        FitCheck(_select_none, only_when="injection not known", is_unresolvable=True),
    )
    AGENT_TOO_OLD = (
        "agent too old for this request",
        FitCheck(_select_none, only_when="words not served", is_unresolvable=True),
    )
    TOO_LARGE = (
        "larger than any card",
        FitCheck(_select_large_enough, "units", needs_one_card=True, is_unresolvable=True),
    )
    TOO_FEW_CARDS = "too few cards", FitCheck(_select_all, is_unresolvable=True)
    MODEL = (
        "card model not allowed",
        FitCheck(_select_of_model, only_when="request not plain", is_unresolvable=True),
    )
    UUID = (
        "card uuid not here",
        FitCheck(_select_by_uuid, only_when="request not plain", is_unresolvable=True),
    )
    NOT_VALID = (
        "request not valid",
        FitCheck(_select_if_valid, only_when="request not plain", is_unresolvable=True),
    )
    NOT_PERMITTED = (
        "card model not allowed by a rule",
        FitCheck(_select_permitted, only_when="under rules", is_unresolvable=True),
    )
    RESERVED = (
        "card reserved by a rule",
        FitCheck(_select_unreserved, only_when="under rules", is_unresolvable=True),
    )
    NOT_OFFERED = (
        "card does not offer all that is asked for",
        FitCheck(_select_offering, only_when="more than memory asked for", is_unresolvable=True),
    )
    NO_REFERENCES = (
        "created before the admission policy",
        FitCheck(_select_none, only_when="references missing", is_unresolvable=True),
    )
    UNPAID = (
        "whole card asks for too little",
        FitCheck(_select_all, only_for="whole cards", is_unresolvable=True, must_be_paid=True),
    )
    NO_ROOM = (
        "no card with enough free memory",
        FitCheck(_select_with_free_units, "free_units", only_for="one card"),
    )
    NOT_ENOUGH_ROOM = (
        "not enough cards with free memory",
        FitCheck(_select_with_free_units, "free_units", only_for="several cards"),
    )
    NO_EMPTY_CARD = "no empty card", FitCheck(_select_empty, only_for="whole cards", must_be_paid=True)
    NO_AMOUNT = (
        "no card with enough free besides memory",
        FitCheck(_select_with_amounts, only_when="more than memory asked for", must_be_paid=True),
    )
    NOT_SHAREABLE = (
        "card may not be shared with its pods",
        FitCheck(_select_shareable, only_when="under rules", must_be_paid=True),
    )
    POD_LIMIT = (
        "card has as many pods as a rule allows",
        FitCheck(_select_uncrowded, only_when="under rules", must_be_paid=True),
    )
    INSTANCE_LIMIT = (
        "card has as many containers as its node can limit",
        FitCheck(_select_with_instances, only_when="instances counted", must_be_paid=True),
    )
    UNHEALTHY = "card unhealthy or cordoned", FitCheck(_select_usable, must_be_paid=True)
    NOT_SEEN = "node not seen yet"
    """The verdict on a node that the ledger does not have; it has no check."""
    GROUP = "its group does not fit"
    """The verdict on every node that the pod alone would fit, where not enough pods of its group would; it has no check."""

    _value_: str
    check: FitCheck | None
    is_unresolvable: bool
    """Whether the node would be refused even if it were empty and healthy. Every other reason may go away by itself."""
    condition_reason: str
    """The text as the reason of a condition: `NoEmptyCard`."""

    def __new__(cls, text: str, check: FitCheck | None = None) -> Self:
        reason = object.__new__(cls)
        reason._value_ = text
        reason.condition_reason = "".join(word[0].upper() + word[1:] for word in text.split())
        reason.check = check
        reason.is_unresolvable = check is not None and check.is_unresolvable
        return reason

    # Identity is enough for members. Enum's own hash is a Python function, and these are looked up by the thousand.
    __hash__ = object.__hash__


def get_request_form(request: CardRequest, count: int) -> RequestForm:
    """The form that the request would have if it asked for `count` cards."""
    if request.whole:
        return "whole cards"
    return "one card" if count == 1 else "several cards"


def is_plain_request(request: CardRequest) -> bool:
    """Whether it is a valid request that names neither models nor cards, so that only numbers decide."""
    return request.models is None and request.uuids is None and request.is_valid


def find_occasion(request: CardRequest, terms: AgentTerms) -> CheckOccasion | None:
    """What keeps the request from all cards of a node, whatever they are, in the order of the table; None if nothing does."""
    is_open, unserved_words, needs_references = terms
    if not is_open:
        return "injection not known"
    if unserved_words and not unserved_words.isdisjoint(request.words):
        return "words not served"
    return "references missing" if needs_references and not request.has_references else None


@cache
def get_checks(
    form: RequestForm,
    occasion: CheckOccasion | None,
    *,
    is_plain: bool,
    is_ruled: bool,
    counts_instances: bool,
    asks_amounts: bool,
) -> tuple[tuple[UnfitReason, FitCheck], ...]:
    """The rows of the table that can fail, in order."""
    occasions: set[CheckOccasion | None] = {None, occasion}
    if not is_plain:
        occasions.add("request not plain")
    if is_ruled:
        occasions.add("under rules")
    if counts_instances:
        occasions.add("instances counted")
    if asks_amounts:
        occasions.add("more than memory asked for")
    return tuple(
        (reason, reason.check)
        for reason in UnfitReason
        if reason.check is not None and reason.check.only_for in (None, form) and reason.check.only_when in occasions
    )
