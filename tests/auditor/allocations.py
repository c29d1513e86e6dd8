"""I2: a bound live pod has exactly one valid card set, equal to its request, and all its annotations agree on it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tests.auditor.asks import AuditedRequest
from tests.auditor.cards import AuditedCard, NodeCards
from tests.auditor.compat import compat_faults
from tests.auditor.pods import AuditedPod
from tests.auditor.records import AuditedHolding, AuditedRecord, AuditedShare
from tests.auditor.terms import Terms, Violation

CDI_NAME = "k8s.device-plugin.nvidia.com/gpu="


def wrong_allocations(pod: AuditedPod, node: NodeCards | None, terms: Terms) -> Iterator[Violation]:
    """What is wrong with the card set of a live pod; nothing for a pod that carries no record at all."""
    for fault in _faults(pod, node, terms):
        yield Violation("I2", pod.object, fault)


def _faults(pod: AuditedPod, node: NodeCards | None, terms: Terms) -> Iterator[str]:
    if pod.unreadable:
        yield f"its record cannot be read: {pod.unreadable}"
    if (record := pod.record) is None:
        return
    if node is None:
        yield f"bound to node {pod.node}, which the API does not show"
        return
    cards = [node.find_card(uuid=held.uuid, index=held.index) for held in record.cards]
    for held, card in zip(record.cards, cards, strict=True):
        if card is None:
            yield f"its record names card {held.uuid or held.index}, which node {node.name} does not have"
    if not record.is_ours:
        yield from _foreign_units(pod.ask, record, cards)
    elif not pod.ask.units:
        yield f"asks for nothing and holds {sum(held.units for held in record.cards)} units"
    else:
        yield from _card_set(pod.ask, record, node, terms)
        known = [card for card in cards if card]
        if len(known) == len(cards) == len(set(known)) and not pod.ask.faults:
            yield from _shares(pod.ask, record, known, terms)
            yield from _environment(pod, record, node, terms)
            yield from compat_faults(pod, record, known, legacy=node.legacy)


def _foreign_units(ask: AuditedRequest, record: AuditedRecord, cards: list[AuditedCard | None]) -> Iterator[str]:
    """A sum of plain containers is gpushare's own; both sums are right for a pod it has bound, and a whole card is one too."""
    total = sum(held.units for held in record.cards)
    right = {ask.units, ask.plain_units}
    if ask.whole:
        right.add(sum(card.units for card in cards if card))
    if total not in right:
        yield f"its {record.generation} record holds {total} units, its request is {ask.units}"


def _card_set(ask: AuditedRequest, record: AuditedRecord, node: NodeCards, terms: Terms) -> Iterator[str]:
    yield from ask.faults
    if node.unit_mib not in {None, terms.unit_mib}:
        yield f"node {node.name} counts units of {node.unit_mib} MiB, the cluster {terms.unit_mib}"
    if len(record.cards) != ask.cards:
        yield f"its record has {len(record.cards)} cards, it asks for {ask.cards}"
    if len({(held.uuid, held.index) for held in record.cards}) != len(record.cards):
        yield "its record names a card twice"
    if terms.whole_cards_are_paid and (total := sum(held.units for held in record.cards)) > ask.units:
        yield f"holds {total} units and asks for {ask.units}"
    for held in record.cards:
        card = node.find_card(uuid=held.uuid, index=held.index)
        if held.whole != ask.whole:
            yield f"card {held.index} is recorded as whole={held.whole}, it asks for whole={ask.whole}"
        if card is None:
            continue
        if (held.uuid, held.index) != (card.uuid, card.index):
            yield f"its record says card {held.uuid} is index {held.index}, the node says {card.uuid} is {card.index}"
        yield from _units_of_card(ask, held, card, terms)


def _units_of_card(ask: AuditedRequest, held: AuditedHolding, card: AuditedCard, terms: Terms) -> Iterator[str]:
    asked, of = ask.units // ask.cards, held.of or card.units
    want = of if ask.whole else asked
    if held.units != want:
        yield f"holds {held.units} units of card {card.index}, its request comes to {want}"
    if asked > of and not (terms.whole_cards_are_paid and ask.whole and 16 * ask.cards * of >= 15 * ask.units):
        yield f"asks {asked} units of card {card.index}, which has {of}"


def _shares(ask: AuditedRequest, record: AuditedRecord, cards: list[AuditedCard], terms: Terms) -> Iterator[str]:
    """The `containers` part: every asking container, on exactly the pod's cards, with its own units and limit."""
    for name in sorted(ask.own.keys() ^ record.containers.keys()):
        yield f"container {name} {'is missing from' if name in ask.own else 'asks for nothing but is in'} the record"
    for name in sorted(ask.own.keys() & record.containers.keys()):
        shares = record.containers[name]
        if sorted(repr(share.uuid) for share in shares) != sorted(repr(card.uuid) for card in cards):
            yield f"container {name} is recorded on other cards than its pod"
            continue
        at_bind = {held.uuid: held.of for held in record.cards}
        by_uuid = {card.uuid: replace(card, units=at_bind.get(card.uuid) or card.units) for card in cards}
        for share in shares:
            yield from _share(name, share, by_uuid[share.uuid], ask, terms)


def _share(name: str, share: AuditedShare, card: AuditedCard, ask: AuditedRequest, terms: Terms) -> Iterator[str]:
    """`card` as it was at bind."""
    own = ask.own[name] // ask.cards
    if share.units != own:
        yield f"container {name} has {share.units} units of card {card.index}, it asks for {own}"
    limit = limit_mib(card, card.units if ask.whole else own, terms)
    if share.mib != limit:
        yield f"container {name} is limited to {share.mib} MiB of card {card.index}, the rule gives {limit}"


def limit_mib(card: AuditedCard, units: int, terms: Terms) -> int | None:
    """floor((memory_mib - reserve_mib) * units / card units); unknown where the card's memory is."""
    if card.memory_mib is None or not card.units:
        return None
    return (card.memory_mib - terms.reserve_mib) * units // card.units


def _environment(pod: AuditedPod, record: AuditedRecord, node: NodeCards, terms: Terms) -> Iterator[str]:
    """What becomes the containers' environment says the same as the record."""
    devices = _named(pod.notes, terms.visible_devices)
    limits = _named(pod.notes, terms.limit_mib)
    for name in sorted((devices.keys() | limits.keys()) - record.containers.keys()):
        yield f"container {name} has device annotations and no part in the record"
    for name, shares in sorted(record.containers.items()):
        want = _device_names(record, shares, node)
        if sorted(devices.get(name, "").split(",")) != sorted(want):
            yield f"container {name} sees {devices.get(name)!r}, the record gives it {','.join(want)!r}"
        smallest = min((share.mib for share in shares if share.mib is not None), default=None)
        if limits.get(name) != (None if smallest is None else str(smallest)):
            yield f"container {name} has the limit annotation {limits.get(name)!r}, the record gives {smallest}"


def _named(notes: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in notes.items() if key.startswith(prefix)}


def _device_names(record: AuditedRecord, shares: tuple[AuditedShare, ...], node: NodeCards) -> list[str]:
    if node.legacy:
        return [str(held.index) for held in record.cards]
    return [f"{CDI_NAME if node.cdi else ''}{share.uuid}" for share in shares]
