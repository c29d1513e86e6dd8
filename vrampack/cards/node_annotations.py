"""A node's annotations: its cards, its cordoned cards, what its agent observed; and nodes of a legacy plugin without them.

`read_node` never raises: an annotation that cannot be read becomes the node's `problem` (cards) or is
reported beside the facts (observed), and no other node is affected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

from vrampack.cards import well_known
from vrampack.cards.card_verdicts import (
    StoredVerdict,
    build_absent_object,
    build_verdict_object,
    read_reason,
    read_verdict,
    sort_stored,
)
from vrampack.cards.node import CardFacts, DeviceNaming, InjectionMode, NodeFacts, Share
from vrampack.cards.records import MAX_INDEX, RecordError, load_json, read_int, read_shares
from vrampack.cards.request import REQUEST_WORDS, UNLISTED_WORDS, RequestWord
from vrampack.cards.units import MAX_UNITS, parse_units

MAX_CARDS = 256
"""16 GPUs of 7 MIG instances are 112; a longer list is damaged."""
RESERVED_NAMES = frozenset({"all", "none", "void"})
"""Texts that a container runtime does not read as the name of one card. Neither is a number, which it reads as an index."""
MAX_MEMORY_MIB = 2**30
MAX_WORDS = 256
"""Of requests, in `serves`: a longer list is damaged."""
MAX_INSTANCES = 2**20


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The facts, and the problems of annotations that are missing from them."""

    facts: NodeFacts
    problems: tuple[str, ...] = ()


def read_node(  # noqa: PLR0913 - the six parts of a Node object that count here
    name: str,
    annotations: Mapping[str, str],
    allocatable: Mapping[str, str],
    *,
    unit_mib: int,
    address: str = "",
    resource: str = well_known.MEMORY_RESOURCE,
    count_resource: str = well_known.COUNT_RESOURCE,
) -> NodeReading:
    """The node's facts from its annotations, or from `allocatable` if it has none of ours."""
    text = annotations.get(well_known.NODE_CARDS)
    if text is None:
        facts = _legacy_node(name, allocatable, resource, count_resource, unit_mib)
    else:
        try:
            facts = _read_cards(name, text)
        except RecordError as error:
            facts = NodeFacts(name, problem=f'annotation "{well_known.NODE_CARDS}": {error}')
    problems: tuple[str, ...] = (facts.problem,) if facts.problem else ()
    observed: Mapping[str, tuple[Share, ...]] | None = None
    if well_known.NODE_OBSERVED in annotations:
        observed, unread = _read_observed(annotations[well_known.NODE_OBSERVED])
        problems += tuple(f'annotation "{well_known.NODE_OBSERVED}": {problem}' for problem in unread)
    cordoned = frozenset(
        part.strip() for part in annotations.get(well_known.CORDONED_CARDS, "").split(",") if part.strip()
    )
    offered = _read_offered_units(allocatable, resource)
    return NodeReading(
        replace(facts, cordoned=cordoned, observed=observed, address=address, offered_units=offered), problems
    )


def write_cards(  # noqa: PLR0913 - the parts of the annotation
    cards: Iterable[CardFacts],
    *,
    unit_mib: int,
    injection: InjectionMode = "exact",
    devices: DeviceNaming = "uuid",
    serves: Collection[RequestWord] = UNLISTED_WORDS,
    has_hook: bool = False,
    absent: Iterable[StoredVerdict] = (),
) -> str:
    """The value of `vrampack.dev/cards`; equal cards give equal texts. `absent`: verdicts on cards that are not listed."""
    listed = [
        {
            "uuid": card.uuid,
            "index": card.index,
            "model": card.model,
            "memory_mib": card.memory_mib,
            "units": card.units,
            "healthy": card.healthy,
            "numa": card.numa,
            "mig_parent": card.mig_parent,
            **({"reason": read_reason(card.reason)} if card.reason else {}),
            **({"verdict": build_verdict_object(card.verdict)} if card.verdict else {}),
            **({} if card.instances is None else {"instances": card.instances}),
        }
        for card in sorted(cards, key=lambda card: card.index)
    ]
    kept = [build_absent_object(stored) for stored in sort_stored(absent)]
    agent = {
        "injection": injection,
        "devices": devices,
        "serves": sorted(serves),
        **({"hook": True} if has_hook else {}),
    }
    return _dump({"v": 1, "unit_mib": unit_mib, **agent, "cards": listed, **({"absent": kept} if kept else {})})


def write_observed(pods: Mapping[str, Iterable[Share]]) -> str:
    """The value of `vrampack.dev/observed`: what pods without a readable record hold, by uid."""
    listed = {
        uid: [{"uuid": share.uuid, "units": share.units} for share in shares] for uid, shares in sorted(pods.items())
    }
    return _dump({"v": 1, "pods": listed})


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _read_cards(name: str, text: str) -> NodeFacts:
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    read_int(value.get("v"), "v", low=1, high=1)
    cards = value.get("cards")
    if not isinstance(cards, list) or len(cards) > MAX_CARDS:
        raise RecordError(f"cards: not a list of at most {MAX_CARDS} cards")
    read = tuple(sorted((_read_card(card, f"cards[{at}]") for at, card in enumerate(cards)), key=lambda c: c.index))
    if len({card.uuid for card in read}) != len(read) or len({card.index for card in read}) != len(read):
        raise RecordError("cards: a uuid or an index appears twice")
    injection = value.get("injection", "exact")
    return NodeFacts(
        name,
        read,
        unit_mib=read_int(value.get("unit_mib"), "unit_mib", low=1, high=MAX_MEMORY_MIB),
        injection=injection if injection in get_args(InjectionMode) else None,
        devices=cast("DeviceNaming", _one_of(value, "devices", get_args(DeviceNaming))),
        serves=_read_words(value.get("serves")),
        has_hook=_read_flag(value.get("hook", False), "hook"),
        problem="" if injection in get_args(InjectionMode) else _explain_unknown_injection(injection),
    )


def _read_words(value: object) -> frozenset[RequestWord]:
    """The words that this version knows; a later agent may have more."""
    if value is None:
        return UNLISTED_WORDS
    if not isinstance(value, list) or len(value) > MAX_WORDS or not all(isinstance(word, str) for word in value):
        raise RecordError(f"serves: not a list of at most {MAX_WORDS} words")
    return REQUEST_WORDS & {*value}


def _read_flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise RecordError(f"{path}: neither true nor false")
    return value


def _explain_unknown_injection(injection: object) -> str:
    return (
        f'annotation "{well_known.NODE_CARDS}": injection: {str(injection)[:60]!r} is not known to this version: '
        "what runs here is counted, and nothing new is placed here; upgrade the extender"
    )


def _read_card(value: object, path: str) -> CardFacts:
    if not isinstance(value, dict):
        raise RecordError(f"{path}: not an object")
    uuid = value.get("uuid")
    if not (isinstance(uuid, str) and uuid) or "," in uuid:
        raise RecordError(f"{path}.uuid: not a uuid")
    if uuid.strip().lower() in RESERVED_NAMES or uuid.isdecimal():
        raise RecordError(
            f"{path}.uuid: {uuid[:60]!r} is not a uuid: NVIDIA's runtime would take it for other cards or for none"
        )
    numa, instances = value.get("numa"), value.get("instances")
    return CardFacts(
        index=read_int(value.get("index"), f"{path}.index", low=0, high=MAX_INDEX),
        units=read_int(value.get("units"), f"{path}.units", low=0, high=MAX_UNITS),
        memory_mib=read_int(value.get("memory_mib"), f"{path}.memory_mib", low=0, high=MAX_MEMORY_MIB),
        uuid=uuid,
        model=_text(value.get("model"), f"{path}.model"),
        healthy=_read_flag(value.get("healthy", True), f"{path}.healthy"),
        numa=None if numa is None else read_int(numa, f"{path}.numa", low=-1, high=MAX_INDEX),
        mig_parent=_text(value.get("mig_parent"), f"{path}.mig_parent") or None,
        reason=read_reason(value.get("reason")),
        verdict=read_verdict(value.get("verdict")),
        instances=None if instances is None else read_int(instances, f"{path}.instances", low=0, high=MAX_INSTANCES),
    )


def _read_observed(text: str) -> tuple[dict[str, tuple[Share, ...]] | None, list[str]]:
    """The readable entries, and the problems of the others: one bad pod does not hide the rest."""
    observed: dict[str, tuple[Share, ...]] = {}
    problems: list[str] = []
    try:
        pods = _observed_pods(text)
    except RecordError as error:
        return None, [str(error)]
    for uid, shares in pods.items():
        try:
            observed[uid] = read_shares(shares, f"pods.{uid[:60]}")
        except RecordError as error:
            problems.append(str(error))
    return observed, problems


def _observed_pods(text: str) -> dict[str, object]:
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    read_int(value.get("v"), "v", low=1, high=1)
    pods = value.get("pods")
    if not isinstance(pods, dict):
        raise RecordError("pods: not an object")
    return pods


def _legacy_node(
    name: str, allocatable: Mapping[str, str], resource: str, count_resource: str, unit_mib: int
) -> NodeFacts:
    """Equal cards from a plugin that advertises only totals; the remainder of the division is not counted."""
    try:
        units, cards = _advertised(allocatable, resource), _advertised(allocatable, count_resource)
    except RecordError as error:
        return NodeFacts(name, legacy=True, problem=str(error))
    if not units or not 0 < cards <= MAX_CARDS or units > MAX_UNITS * cards:
        return NodeFacts(name, legacy=True)
    each = units // cards
    return NodeFacts(name, tuple(CardFacts(index, each, each * unit_mib) for index in range(cards)), legacy=True)


def _read_offered_units(allocatable: Mapping[str, str], resource: str) -> int | None:
    try:
        return _advertised(allocatable, resource)
    except RecordError:  # for a legacy node it is the node's problem
        return None


def _advertised(allocatable: Mapping[str, str], resource: str) -> int:
    try:
        return parse_units(allocatable.get(resource) or "0")
    except ValueError as error:
        raise RecordError(f'status.allocatable["{resource}"]: {error}') from error


def _one_of(value: Mapping[str, object], key: str, choices: tuple[str, ...]) -> str:
    given = value.get(key, choices[0])
    if given not in choices:
        raise RecordError(f"{key}: {str(given)[:60]!r} is none of {', '.join(choices)}")
    return str(given)


def _text(value: object, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordError(f"{path}: not a text")
    return value
