"""What a pod asks for: section "what a pod may ask" of the contract, from the raw pod."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.auditor.raw import Raw, decimal, labels, listing, mapping, quantity, text
from tests.auditor.terms import LARGEST_ASK, WHOLE_DEVICE, Terms


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """The request of one pod, over all its cards."""

    units: int
    """What the pod holds for life, by the scheduler's own sum."""

    plain_units: int
    """The sum over plain containers alone: all that gpushare itself counts."""

    own: Mapping[str, int]
    """Each asking container's own units, init containers too."""

    order: tuple[str, ...]
    """Names of the plain containers, by index."""

    cards: int
    whole: bool
    faults: tuple[str, ...]
    """Why this request is not valid; such a pod must never be bound with a record."""


def read_request(pod: Raw, terms: Terms) -> AuditedRequest:
    """The request of a pod; what cannot be read counts as nothing and is named in `faults`."""
    spec, faults = mapping(pod.get("spec")), []
    plain = [mapping(container) for container in listing(spec.get("containers"))]
    init = [mapping(container) for container in listing(spec.get("initContainers"))]
    units: dict[str, int] = {}
    for container in (*plain, *init):
        try:
            units[text(container.get("name"))] = _own_units(container, terms)
        except ValueError as error:
            faults.append(str(error))
    plain_units = sum(units.get(text(container.get("name")), 0) for container in plain)
    held = _held_for_life(plain_units, init, units)
    cards = _cards(labels(pod).get(terms.count), faults)
    is_whole = labels(pod).get(terms.placement) == WHOLE_DEVICE
    uneven = [] if is_whole else [(name, n) for name, n in units.items() if n % cards]
    faults += [f"container {name}: {n} units do not divide by {cards} cards" for name, n in uneven]
    if held > LARGEST_ASK:
        faults.append(f"{held} units are more than any pod may ask")
    return AuditedRequest(
        units=held,
        plain_units=plain_units,
        own={name: n for name, n in units.items() if n > 0},
        order=tuple(text(container.get("name")) for container in plain),
        cards=cards,
        whole=is_whole,
        faults=tuple(faults),
    )


def _own_units(container: Raw, terms: Terms) -> int:
    resources = mapping(container.get("resources"))
    limit = mapping(resources.get("limits")).get(terms.memory)
    return quantity(mapping(resources.get("requests")).get(terms.memory) if limit is None else limit)


def _held_for_life(plain_units: int, init: list[Raw], units: Mapping[str, int]) -> int:
    """max( sum(containers) + sum(restartable init), max over init i of (own + restartable init before it) )."""
    restartable, peak = 0, 0
    for container in init:
        own = units.get(text(container.get("name")), 0)
        peak = max(peak, own + restartable)
        if container.get("restartPolicy") == "Always":
            restartable += own
    return max(plain_units + restartable, peak)


def _cards(label: str | None, faults: list[str]) -> int:
    count = 1 if label is None else decimal(label)
    if not count:
        faults.append(f"label for the number of cards is {label!r}, not a whole number above 0")
        return 1
    return count
