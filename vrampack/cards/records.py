"""Records: the annotation strings in which allocations are written, ours and gpushare's.

`write_record` gives every annotation of a Binding. `read_record` accepts four generations: ours, then
gpushare v3, v2 and v1; the first that is present wins, and an unreadable record is a value, not an exception.
`docs/records.md` lists every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vrampack.cards import well_known
from vrampack.cards.allocation import Allocation
from vrampack.cards.node import Node, Share
from vrampack.cards.request import PodRequest
from vrampack.cards.units import MAX_UNITS

MAX_INDEX = 4096
"""No node has this many cards; a larger index means a damaged record."""
MAX_FRACTION_NAME = 63 - len("container.") - len(".gpu-memory.request")
"""An annotation's name has at most 63 characters, and the API server refuses updates of a pod that has a longer one."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a pod holds, according to its annotations."""

    generation: str
    """`vrampack`, `gpushare-v3`, `gpushare-v2` or `gpushare-v1`."""
    shares: tuple[Share, ...]
    disagreement: str = ""
    """Set when another generation's annotation on the same pod names other cards, or cannot be read."""

    @property
    def is_ours(self) -> bool:
        return self.generation == "vrampack"


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record is there and cannot be read: the pod counts on every card of its node."""

    key: str
    problem: str


class RecordError(ValueError):
    """An annotation's text is invalid; the message names the path inside it."""


def write_record(allocation: Allocation, pod_request: PodRequest, node: Node, *, now_ns: int) -> dict[str, str]:
    """Every annotation of the Binding that binds the pod to `node` with this allocation."""
    record = {well_known.ALLOCATION: _allocation_json(allocation)}
    for name, shares in allocation.containers:
        record[well_known.VISIBLE_DEVICES_PREFIX + name] = ",".join(
            _device(share.uuid, share.index, node) for share in shares
        )
        limits = [share.mib for share in shares if share.mib is not None]
        if limits:
            record[well_known.LIMIT_MIB_PREFIX + name] = str(min(limits))
    return record | _gpushare_record(allocation, pod_request, node, now_ns)


def write_fraction_annotations(allocation: Allocation) -> dict[str, str]:
    """The annotations that NVIDIA's fractiond reads, for clusters where it runs; a setting adds them.

    A container whose name is too long for the keys gets none.
    """
    record: dict[str, str] = {}
    for name, shares in allocation.containers:
        limits = [share.mib for share in shares if share.mib is not None]
        if limits and len(name) <= MAX_FRACTION_NAME:
            prefix = f"nvidia.com/container.{name}"
            record[f"{prefix}.gpu-memory.limit"] = record[f"{prefix}.gpu-memory.request"] = f"{min(limits)}Mi"
            record[f"{prefix}.gpus.devices"] = ",".join(share.uuid for share in shares if share.uuid)
    return record


def read_record(annotations: Mapping[str, str], pod_request: PodRequest | None) -> Record | UnreadableRecord | None:
    """The pod's record, or why it cannot be read, or None when there is none.

    `pod_request` is for gpushare v1 records without a size: the pod's whole request is then on its card.
    """
    found: Record | None = None
    for key, (generation, read) in _RECORD_READERS.items():
        text = annotations.get(key)
        if text is None:
            continue
        try:
            shares = read(text, annotations, pod_request)
        except RecordError as error:
            if found is None:
                return UnreadableRecord(key, str(error))
            found = _with_disagreement(found, f"{key} cannot be read: {error}")
            continue
        if found is None:
            found = Record(generation, shares)
        elif _name_other_cards(found.shares, shares):
            text = f"{key} names cards {_indices(shares)}, the {found.generation} record {_indices(found.shares)}"
            found = _with_disagreement(found, text)
    return found


def load_json(text: str) -> object:
    """Parse JSON in which no key appears twice, and whose texts can be encoded again. Raises `RecordError`."""
    try:
        value: object = _JSON.decode(text)
        if "\\u" in text:  # half a surrogate pair is valid JSON, but cannot be encoded to be shown
            json.dumps(value, ensure_ascii=False).encode()
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from error
    return value


def read_int(value: object, path: str, *, low: int, high: int) -> int:
    """`value` when it is a whole number in range. Raises `RecordError` naming `path`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RecordError(f"{path}: {str(value)[:60]} is not a whole number from {low} to {high}")
    return value


def read_shares(value: object, path: str) -> tuple[Share, ...]:
    """A non-empty list of `{"uuid","index","units","of","whole"}` on distinct cards. Raises `RecordError` naming `path`."""
    if not isinstance(value, list) or not value:
        raise RecordError(f"{path}: not a list with at least one card")
    shares = tuple(_read_share(item, f"{path}[{at}]") for at, item in enumerate(value))
    if len({share.uuid if share.uuid is not None else share.index for share in shares}) != len(shares):
        raise RecordError(f"{path}: names a card twice")
    return shares


def _read_share(value: object, path: str) -> Share:
    if not isinstance(value, dict):
        raise RecordError(f"{path}: not an object")
    uuid = value.get("uuid")
    if uuid is not None and not (isinstance(uuid, str) and uuid):
        raise RecordError(f"{path}.uuid: neither a text nor null")
    index = value.get("index")
    if index is not None:
        index = read_int(index, f"{path}.index", low=0, high=MAX_INDEX)
    if uuid is None and index is None:
        raise RecordError(f"{path}: names no card, neither uuid nor index")
    units, card_units = value.get("units"), value.get("of")
    if card_units is not None:
        card_units = read_int(card_units, f"{path}.of", low=1, high=MAX_UNITS)
    return Share(
        read_int(units, f"{path}.units", low=1, high=MAX_UNITS),
        uuid,
        index,
        whole=value.get("whole") is True,
        card_units=card_units,
    )


def _read_ours(text: str, _annotations: Mapping[str, str], _pod_request: PodRequest | None) -> tuple[Share, ...]:
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    read_int(value.get("v"), "v", low=1, high=1)
    containers = value.get("containers")
    return tuple(
        replace(share, limit=_find_limit(containers, share.uuid)) if share.card_units is None else share
        for share in read_shares(value.get("cards"), "cards")
    )


def _find_limit(containers: object, uuid: str | None) -> tuple[int, int] | None:
    """Units and MiB of the container that has most of this card; None if no container has a limit there."""
    limits = []
    for shares in containers.values() if isinstance(containers, dict) else ():
        for share in shares if isinstance(shares, list) else ():
            if isinstance(share, dict) and uuid is not None and share.get("uuid") == uuid:
                units, mib = share.get("units"), share.get("mib")
                if type(units) is int and type(mib) is int and units > 0:
                    limits.append((units, mib))
    return max(limits, default=None)


def _read_gpushare_json(
    text: str, _annotations: Mapping[str, str], _pod_request: PodRequest | None
) -> tuple[Share, ...]:
    """`{"<container index>":{"<card index>":units}}`, summed per card."""
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    units: dict[int, int] = {}
    for container, cards in value.items():
        if not isinstance(cards, dict):
            raise RecordError(f"{container[:60]}: not an object of card index and units")
        for card, given in cards.items():
            index = _card_index(card, container[:60])
            units[index] = units.get(index, 0) + read_int(given, f"{container[:60]}.{card}", low=0, high=MAX_UNITS)
    shares = tuple(Share(given, index=index) for index, given in sorted(units.items()) if given)
    if not shares:
        raise RecordError("names no card")
    return shares


def _read_gpushare_v1(text: str, annotations: Mapping[str, str], pod_request: PodRequest | None) -> tuple[Share, ...]:
    index = _card_index(text, well_known.GPUSHARE_IDX)
    size = annotations.get(well_known.GPUSHARE_POD)
    if size is None:
        if pod_request is None or not pod_request.card_request.units:
            raise RecordError(f"{well_known.GPUSHARE_POD} is missing and the pod requests nothing")
        return (Share(pod_request.asked_units, index=index),)
    if not (size.isascii() and size.isdecimal() and len(size) <= len(str(MAX_UNITS))):
        raise RecordError(f"{well_known.GPUSHARE_POD}: {size[:60]!r} is not a number of units")
    return (Share(read_int(int(size), well_known.GPUSHARE_POD, low=1, high=MAX_UNITS), index=index),)


_RECORD_READERS = {
    well_known.ALLOCATION: ("vrampack", _read_ours),
    well_known.GPUSHARE_V3_MEMORY: ("gpushare-v3", _read_gpushare_json),
    well_known.GPUSHARE_ALLOCATION: ("gpushare-v2", _read_gpushare_json),
    well_known.GPUSHARE_IDX: ("gpushare-v1", _read_gpushare_v1),
}


def _card_index(text: str, path: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_INDEX)) and int(text) <= MAX_INDEX):
        raise RecordError(f"{path}: {text[:60]!r} is not a card index")
    return int(text)


def _allocation_json(allocation: Allocation) -> str:
    cards = [
        {"uuid": card.uuid, "index": card.index, "units": card.units}
        | ({} if card.card_units is None else {"of": card.card_units})
        | {"whole": card.whole}
        for card in allocation.cards
    ]
    containers = {
        name: [
            {"uuid": share.uuid, "units": share.units} | ({} if share.mib is None else {"mib": share.mib})
            for share in shares
        ]
        for name, shares in allocation.containers
    }
    return _dump({"v": 1, "cards": cards, "containers": containers})


def _gpushare_record(allocation: Allocation, pod_request: PodRequest, node: Node, now_ns: int) -> dict[str, str]:
    lowest = next(card for card in node.cards if card.index == allocation.cards[0].index)
    record = {
        well_known.GPUSHARE_ALLOCATION: _dump(_gpushare_shares(allocation, pod_request)),
        well_known.GPUSHARE_POD: str(sum(card.units for card in allocation.cards)),
        well_known.GPUSHARE_DEV: str(lowest.units),
        well_known.GPUSHARE_ASSIGNED: "false" if node.legacy else "true",
        well_known.GPUSHARE_ASSUME_TIME: str(now_ns),
    }
    if len(allocation.cards) == 1:
        record[well_known.GPUSHARE_IDX] = str(lowest.index)
    return record


def _gpushare_shares(allocation: Allocation, pod_request: PodRequest) -> dict[str, dict[str, int]]:
    """Units per container and card that add up to what is held: one container gets what init containers or a whole card add."""
    main = [container for container in pod_request.containers if container.kind == "main"]
    shares: dict[str, dict[str, int]] = {str(container.index): {} for container in main}
    for card in allocation.cards:
        left = card.units  # a whole card may have fewer than its part of what was asked
        for container in main:
            given = min(left, container.units // pod_request.card_request.count)
            shares[str(container.index)][str(card.index)] = given
            left -= given
    lowest = shares.setdefault(str(min((container.index for container in main), default=0)), {})
    for card in allocation.cards:
        given = sum(cards.get(str(card.index), 0) for cards in shares.values())
        if card.units > given:
            lowest[str(card.index)] = lowest.get(str(card.index), 0) + card.units - given
    return shares


def _device(uuid: str | None, index: int, node: Node) -> str:
    if uuid is None:
        return str(index)
    return f"{well_known.CDI_KIND}={uuid}" if node.devices == "cdi" else uuid


def _with_disagreement(record: Record, text: str) -> Record:
    """Add a disagreement, unless there is one already: only the first is reported."""
    return record if record.disagreement else Record(record.generation, record.shares, text)


def _name_other_cards(shares: tuple[Share, ...], others: tuple[Share, ...]) -> bool:
    """Whether they name different cards. Shares that name cards by uuid alone say nothing about indices."""
    if len(shares) == len(others) == 1 and shares[0].index == others[0].index:
        return False
    mine, theirs = _indices(shares), _indices(others)
    return None not in (*mine, *theirs) and mine != theirs


def _indices(shares: tuple[Share, ...]) -> list[int | None]:
    return sorted((share.index for share in shares), key=lambda index: -1 if index is None else index)


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RecordError("a key appears twice")
    return value


def _refuse_constant(text: str) -> object:
    raise RecordError(f"{text} is not a number")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
"""Built once: `json.loads` would build one for every record of a list of thousands."""
