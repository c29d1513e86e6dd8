"""The oracle's reading of annotations and `allocatable`: a node's cards, and the records of pods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.wire.oracle_asks import MAX_UNITS, Object, oracle_request, quantity

UNIT_MIB = 1024
MAX_INDEX = 4096
RECORDS = (
    "vrampack.dev/allocation",
    "gpushare.alibabacloud.com/gpumemory",
    "scheduler.framework.gpushare.allocation",
    "ALIYUN_COM_GPU_MEM_IDX",
)
"""The four generations, in the order in which the first that is there wins."""
KNOWN_INJECTIONS = ("exact", "cdi")
FIRST_WORDS = ("memory", "several-cards", "whole-cards")
"""What an agent understands that does not say."""
Shares = list[tuple[str | None, int | None, int]]
"""Uuid, index, units."""


class Malformed(Exception):  # noqa: N818 - a word of the oracle, never raised out of it
    """A text that is not what it should be."""


@dataclass(slots=True)
class OracleCard:
    """One card, counted by the oracle."""

    index: int
    uuid: str | None
    units: int
    model: str = ""
    is_usable: bool = True
    used: int = 0
    gpu: str = ""
    instances: int | None = None


def cards_of(node: Object) -> list[OracleCard]:
    """The agent's annotation where there is one, else the totals that another plugin advertises; none when unreadable."""
    notes = node["metadata"].get("annotations") or {}
    cordoned = {part.strip() for part in notes.get("vrampack.dev/cordoned-cards", "").split(",")}
    if "vrampack.dev/cards" not in notes:
        return _advertised(node)
    try:
        published = _document(notes["vrampack.dev/cards"])
        if _whole(published.get("unit_mib"), 1, 2**30) != UNIT_MIB and injection_of(node) in KNOWN_INJECTIONS:
            return []
        _need(published.get("devices", "uuid") in ("uuid", "cdi"))
        cards = [_card(each, cordoned) for each in _list(published.get("cards"))]
        _need(len({card.uuid for card in cards}) == len({card.index for card in cards}) == len(cards))
    except Malformed:
        return []
    return cards


def injection_of(node: Object) -> str:
    """How containers get their cards, as the agent says; `cdi`, which needs no references either, for another plugin."""
    notes = node["metadata"].get("annotations") or {}
    if "vrampack.dev/cards" not in notes:
        return "cdi"
    try:
        return str(_document(notes["vrampack.dev/cards"]).get("injection", "exact"))
    except Malformed:
        return "exact"


def agent_of(node: Object) -> tuple[set[str], bool]:
    """The words of requests that the agent understands, and whether the hook runs there."""
    text = (node["metadata"].get("annotations") or {}).get("vrampack.dev/cards")
    published = {} if text is None else _document(text)
    return set(published.get("serves", FIRST_WORDS)), published.get("hook", False)


def has_record(pod: Object) -> bool:
    """Whether any generation is there, readable or not."""
    return any(key in RECORDS for key in pod["metadata"].get("annotations") or {})


def held_by_record(pod: Object) -> Shares | None:
    """The first generation that is there; None when it is none or cannot be read."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        if RECORDS[0] in notes:
            return _shares(_document(notes[RECORDS[0]]).get("cards"))
        for key in RECORDS[1:3]:
            if key in notes:
                return _by_container(_json(notes[key]))
        if RECORDS[3] in notes:
            index = _number(notes[RECORDS[3]], 0, MAX_INDEX)
            wanted = oracle_request(pod)
            asked = wanted.asked if wanted else 0
            size = notes.get("ALIYUN_COM_GPU_MEM_POD")
            units = _whole(asked, 1, 2**100) if size is None else _number(size, 1, MAX_UNITS)
            return [(None, index, units)]
    except Malformed:
        return None
    return None


def held_by_observation(pod: Object, node: Object) -> Shares | None:
    """What the node's agent says of a pod without a readable record."""
    text = (node["metadata"].get("annotations") or {}).get("vrampack.dev/observed")
    if text is None:
        return None
    try:
        pods: Any = _document(text).get("pods")  # Any: any JSON value may stand there
        _need(isinstance(pods, dict))
        observed = {uid: _shares(shares) for uid, shares in pods.items()}
    except Malformed:
        return None
    return observed.get(pod["metadata"]["uid"])


def _advertised(node: Object) -> list[OracleCard]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    units = quantity(allocatable.get("aliyun.com/gpu-mem", 0))
    count = quantity(allocatable.get("aliyun.com/gpu-count", 0))
    if not units or not count or count > 256:
        return []
    return [OracleCard(index, None, units // count) for index in range(count)]


def _card(value: object, cordoned: set[str]) -> OracleCard:
    _need(isinstance(value, dict))
    card: Object = value  # type: ignore[assignment]  # a dict, as was just checked
    uuid, model, healthy = card.get("uuid"), card.get("model") or "", card.get("healthy", True)
    _need(isinstance(uuid, str) and bool(uuid) and isinstance(model, str) and isinstance(healthy, bool))
    index, units = _whole(card.get("index"), 0, MAX_INDEX), _whole(card.get("units"), 0, MAX_UNITS)
    _whole(card.get("memory_mib"), 0, 2**30)
    most = card.get("instances")
    return OracleCard(
        index,
        str(uuid),
        units,
        model,
        healthy and uuid not in cordoned,
        gpu=str(card.get("mig_parent") or uuid),
        instances=None if most is None else _whole(most, 0, 2**20),
    )


def _shares(value: object) -> Shares:
    shares: Shares = []
    for each in _list(value):
        _need(isinstance(each, dict))
        uuid, index = each.get("uuid"), each.get("index")
        _need(uuid is None or (isinstance(uuid, str) and bool(uuid)))
        _need(not (uuid is None and index is None))
        shares.append(
            (uuid, None if index is None else _whole(index, 0, MAX_INDEX), _whole(each.get("units"), 1, MAX_UNITS))
        )
    _need(bool(shares) and len({uuid if uuid is not None else index for uuid, index, _ in shares}) == len(shares))
    return shares


def _by_container(value: Any) -> Shares:  # noqa: ANN401 - any JSON value may stand there
    _need(isinstance(value, dict))
    units: dict[int, int] = {}
    for cards in value.values():
        _need(isinstance(cards, dict))
        for text, given in cards.items():
            index = _number(text, 0, MAX_INDEX)
            units[index] = units.get(index, 0) + _whole(given, 0, MAX_UNITS)
    shares: Shares = [(None, index, given) for index, given in units.items() if given]
    _need(bool(shares))
    return shares


def _document(text: str) -> Object:
    value = _json(text)
    _need(isinstance(value, dict) and value.get("v") == 1 and not isinstance(value["v"], bool))
    found: Object = value
    return found


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON value may stand there
    def unique(pairs: list[tuple[str, Any]]) -> Object:
        _need(len(dict(pairs)) == len(pairs))
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise Malformed(text) from error


def _list(value: object) -> list[Any]:
    _need(isinstance(value, list))
    found: list[Any] = value  # type: ignore[assignment]  # a list, as was just checked
    return found


def _whole(value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Malformed(str(value))
    return value


def _number(text: str, low: int, high: int) -> int:
    _need(text.isascii() and text.isdecimal() and len(text) <= 9)
    return _whole(int(text), low, high)


def _need(claim: bool) -> None:  # noqa: FBT001 - a claim is what is given
    if not claim:
        raise Malformed
