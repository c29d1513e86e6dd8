"""Verdicts on cards as the Node's annotations have them, and the operators' heals that end them.

Nothing here raises: a verdict or a heal that cannot be read is left out, and the card's `healthy` decides alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast, get_args

from vrampack.cards.node import CardAction, CardVerdict
from vrampack.cards.records import RecordError, load_json

MAX_REASON_LENGTH = 200
MAX_STORED = 256
MAX_HEALS = 64
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
"""RFC 3339 in UTC, to the second: such texts sort by time."""


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict with its card, which need not exist now."""

    uuid: str
    gpu: str
    """The GPU's uuid; for a MIG instance its parent's."""
    reason: str
    verdict: CardVerdict


@dataclass(frozen=True, slots=True)
class CardHeal:
    """An operator's heal of one card."""

    at: str
    waived: tuple[str, ...] = ()
    """Causes that do not count although NVML still reports them."""


def build_verdict_object(verdict: CardVerdict) -> dict[str, object]:
    return {
        "cause": verdict.cause,
        "action": verdict.action,
        "since": verdict.since,
        "boot": verdict.boot,
        "nvml": verdict.is_nvml_asked,
    }


def build_absent_object(stored: StoredVerdict) -> dict[str, object]:
    return {
        "uuid": stored.uuid,
        "gpu": stored.gpu,
        "reason": stored.reason,
        "verdict": build_verdict_object(stored.verdict),
    }


def read_reason(value: object) -> str:
    """The reason as short text on one line, without characters that control a terminal."""
    text = value[:MAX_REASON_LENGTH] if isinstance(value, str) else ""
    return "".join(char if char.isprintable() else " " for char in text)


def read_verdict(value: object) -> CardVerdict | None:
    """The verdict; None if there is none or it cannot be read."""
    if not isinstance(value, dict):
        return None
    cause, action, since = value.get("cause"), value.get("action"), value.get("since")
    if not (isinstance(cause, str) and cause and action in get_args(CardAction) and _is_moment(since)):
        return None
    boot = value.get("boot")
    return CardVerdict(
        cause[:60],
        cast("CardAction", action),
        cast("str", since),
        boot=boot[:60] if isinstance(boot, str) else "",
        is_nvml_asked=value.get("nvml") is True,
    )


def read_stored_verdicts(text: str | None) -> tuple[StoredVerdict, ...]:
    """All verdicts in `vrampack.dev/cards`: those of listed cards, and those of cards absent when it was written."""
    document = _load_object(text)
    entries = [*_list_objects(document.get("cards")), *_list_objects(document.get("absent"))]
    return tuple(stored for entry in entries[: 2 * MAX_STORED] if (stored := _read_stored(entry)) is not None)


def read_heals(text: str | None) -> dict[str, CardHeal]:
    """The heals in the value of `vrampack.dev/healed-cards`, by uuid."""
    heals = {}
    cards = _load_object(text).get("cards")
    for uuid, entry in list((cards if isinstance(cards, dict) else {}).items())[:MAX_HEALS]:
        if isinstance(entry, dict) and _is_moment(at := entry.get("at")):
            waived = entry.get("waived")
            causes = [cause for cause in (waived if isinstance(waived, list) else ()) if isinstance(cause, str)]
            heals[uuid] = CardHeal(cast("str", at), tuple(causes))
    return heals


def write_heals(heals: Mapping[str, CardHeal]) -> str:
    """The value of `vrampack.dev/healed-cards`. If there are too many, the oldest are dropped."""
    newest = sorted(heals.items(), key=lambda item: item[1].at, reverse=True)[:MAX_HEALS]
    cards = {uuid: {"at": heal.at, "waived": list(heal.waived)} for uuid, heal in sorted(newest)}
    return json.dumps({"v": 1, "cards": cards}, separators=(",", ":"))


def sort_stored(verdicts: Iterable[StoredVerdict]) -> tuple[StoredVerdict, ...]:
    """The verdicts in the order in which they are written; if there are too many, the oldest are dropped."""
    newest = sorted(verdicts, key=lambda stored: (stored.verdict.since, stored.uuid), reverse=True)[:MAX_STORED]
    return tuple(sorted(newest, key=lambda stored: stored.uuid))


def _read_stored(entry: Mapping[str, object]) -> StoredVerdict | None:
    uuid, verdict = entry.get("uuid"), read_verdict(entry.get("verdict"))
    if not isinstance(uuid, str) or not uuid or verdict is None:
        return None
    gpu = entry.get("gpu") or entry.get("mig_parent")
    reason = read_reason(entry.get("reason")) or verdict.cause
    return StoredVerdict(uuid, gpu if isinstance(gpu, str) else uuid, reason, verdict)


def _load_object(text: str | None) -> dict[str, object]:
    try:
        value = load_json(text or "{}")
    except RecordError:
        return {}
    return value if isinstance(value, dict) else {}


def _list_objects(value: object) -> Iterator[dict[str, object]]:
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


def _is_moment(value: object) -> bool:
    return isinstance(value, str) and _MOMENT.fullmatch(value) is not None
