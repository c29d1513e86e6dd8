"""The other opinion: what filter and prioritize must answer, from raw JSON objects, the slow way.

Written from the contract, not from the code, and importing nothing of it. Every call counts the whole cluster again:
which cards a node has, what every live pod holds on them, what the pod in question asks, and why a node will not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tests.wire.oracle_annotations import (
    KNOWN_INJECTIONS,
    OracleCard,
    agent_of,
    cards_of,
    has_record,
    held_by_observation,
    held_by_record,
    injection_of,
)
from tests.wire.oracle_asks import Object, OracleRequest, is_large_enough, keep_paid, oracle_request, pays_for

SCORES = (10, 5, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class OracleVerdicts:
    """A filter answer."""

    passed: list[str]
    later: dict[str, str]
    never: dict[str, str]


def oracle_filter(
    nodes: Iterable[Object],
    pods: Sequence[Object],
    asking: Object,
    names: Sequence[str],
    at_start: Sequence[Object] | None = None,
) -> OracleVerdicts:
    """Every name once, in order, in exactly one of the three. `at_start`: the pods when the extender started, if others."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    verdicts = OracleVerdicts([], {}, {})
    wanted = _read_wanted(asking, pods if at_start is None else at_start)
    for name in dict.fromkeys(names):
        text, is_never = ("", False) if wanted is None else _refusal(by_name.get(name), pods, wanted)
        if not text:
            verdicts.passed.append(name)
        elif is_never:
            verdicts.never[name] = text
        else:
            verdicts.later[name] = text
    return verdicts


def oracle_scores(
    nodes: Iterable[Object], pods: Sequence[Object], asking: Object, names: Sequence[str]
) -> dict[str, int]:
    """The scores of `binpack`, best first: least room left on the cards taken, then by node name. All others are 0."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    wanted = _read_wanted(asking, pods)
    if wanted is None:
        return {}
    passed = oracle_filter(nodes, pods, asking, names).passed
    rooms = {name: _room_on_taken(loaded_cards(by_name[name], pods), wanted) for name in passed}
    best = sorted(passed, key=lambda name: (rooms[name], name))
    return {name: score for score, name in zip(SCORES, best, strict=False) if score}


def loaded_cards(node: Object, pods: Iterable[Object]) -> list[OracleCard]:
    """The node's cards with what live bound pods hold on each."""
    cards = cards_of(node)
    for pod in pods:
        is_live = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        is_ours = oracle_request(pod) is not None or has_record(pod)
        if is_live and is_ours and pod["spec"].get("nodeName") == node["metadata"]["name"]:
            for index, units in count_held_units(pod, node, cards).items():
                next(card for card in cards if card.index == index).used += units
    return cards


def count_held_units(pod: Object, node: Object, cards: list[OracleCard]) -> dict[int, int]:
    """By its record; else as the node's agent observed; else on every card."""
    shares = held_by_record(pod)
    for found in (shares, held_by_observation(pod, node)):
        if found is not None:
            placed = _place(found, node, cards)
            if placed is not None:
                return placed
    wanted = oracle_request(pod)
    if wanted is not None and wanted.whole:
        return {card.index: card.units for card in cards}
    most = max([wanted.units if wanted else 0, *(units for _, _, units in shares or ())])
    return {card.index: most for card in cards}


def _place(
    shares: list[tuple[str | None, int | None, int]], node: Object, cards: list[OracleCard]
) -> dict[int, int] | None:
    """Units by card index; None when a share names no card of this node. Cards of legacy nodes have no uuid."""
    is_legacy = "vrampack.dev/cards" not in (node["metadata"].get("annotations") or {})
    placed: dict[int, int] = {}
    for uuid, index, units in shares:
        if uuid is not None and not is_legacy:
            named = [card for card in cards if card.uuid == uuid]
        else:
            named = [card for card in cards if card.index == index]
        if not named:
            return None
        placed[named[0].index] = placed.get(named[0].index, 0) + units
    return placed


def _refusal(node: Object | None, pods: Sequence[Object], wanted: OracleRequest) -> tuple[str, bool]:
    """The first text that applies, in the contract's order, and whether eviction could never help."""
    if node is None:
        return "node not seen yet", False
    cards = loaded_cards(node, pods)
    never = _never(cards, wanted, node)
    if never:
        return never, True
    allowed = [card for card in _large(cards, wanted) if _is_allowed(card, wanted)]
    roomy = [card for card in allowed if _has_room(card, wanted)]
    if len(roomy) < wanted.count or not _is_paid(roomy, wanted):
        if wanted.whole:
            return "no empty card", False
        many = "not enough cards with free memory"
        return ("no card with enough free memory" if wanted.count == 1 else many), False
    usable = [card for card in roomy if card.is_usable]
    if len(usable) < wanted.count or not _is_paid(usable, wanted):
        return "card unhealthy or cordoned", False
    return "", False


def _never(cards: list[OracleCard], wanted: OracleRequest, node: Object) -> str:
    injection = injection_of(node)
    large = _large(cards, wanted)
    of_model = [card for card in large if not wanted.models or card.model in wanted.models]
    of_uuid = [card for card in of_model if not wanted.uuids or card.uuid in wanted.uuids]
    checks = {
        "no shareable GPU memory": not any(card.units for card in cards),
        "injection mode not known": injection not in KNOWN_INJECTIONS,
        "agent too old for this request": bool(cards) and not wanted.words <= agent_of(node)[0],
        "larger than any card": not large,
        "too few cards": len(large) < wanted.count,
        "card model not allowed": len(of_model) < wanted.count,
        "card uuid not here": len(of_uuid) < wanted.count,
        "request not valid": not wanted.is_valid,
        "created before the admission policy": not wanted.is_wired and injection == "exact",
        "whole card asks for too little": not _is_paid(of_uuid, wanted),
    }
    return next((text for text, applies in checks.items() if applies), "")


def _large(cards: list[OracleCard], wanted: OracleRequest) -> list[OracleCard]:
    return [card for card in cards if is_large_enough(wanted, card.units, is_paid=wanted.pays)]


def _is_paid(cards: list[OracleCard], wanted: OracleRequest) -> bool:
    return not wanted.pays or pays_for(wanted, [card.units for card in cards])


def _read_wanted(asking: Object, pods: Sequence[Object]) -> OracleRequest | None:
    wanted = oracle_request(asking)
    return wanted and replace(wanted, pays=not any(map(_is_from_before, pods)))


def _is_from_before(pod: Object) -> bool:
    """Whether it runs with a record of gpushare: whole cards are then as requested."""
    is_live = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    notes = pod["metadata"].get("annotations") or {}
    is_ours = "vrampack.dev/allocation" in notes
    return bool(pod["spec"].get("nodeName")) and is_live and not is_ours and held_by_record(pod) is not None


def _is_allowed(card: OracleCard, wanted: OracleRequest) -> bool:
    return (not wanted.models or card.model in wanted.models) and (not wanted.uuids or card.uuid in wanted.uuids)


def _has_room(card: OracleCard, wanted: OracleRequest) -> bool:
    return card.used == 0 if wanted.whole else card.units - card.used >= wanted.units


def _room_on_taken(cards: list[OracleCard], wanted: OracleRequest) -> int:
    """Free units of the cards a best fit takes: the fewest that any choice of cards could leave."""
    large = [card for card in _large(cards, wanted) if _is_allowed(card, wanted)]
    roomy = [card for card in large if card.is_usable and _has_room(card, wanted)]
    if wanted.whole and wanted.is_valid and wanted.pays:
        roomy = keep_paid(wanted, roomy, lambda card: (card.units, card.model))
    return sum(sorted(card.units - card.used for card in roomy)[: wanted.count])
