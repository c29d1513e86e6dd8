"""The oracle's reading of what a pod asks, from the raw object: quantities, labels, wishes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any, TypeVar

_T = TypeVar("_T")
Object = dict[str, Any]  # Any: raw API objects are what the oracle reads

MEMORY = "aliyun.com/gpu-mem"
MAX_UNITS = 1_048_576
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i?|k|m|u|n)|[eE]([+-]?[0-9]+))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@dataclass(frozen=True, slots=True)
class OracleRequest:
    """What a pod asks of one node."""

    units: int
    """On each card, rounded down."""
    asked: int
    """On all cards together."""
    is_even: bool
    count: int
    whole: bool
    models: set[str]
    uuids: set[str]
    is_valid: bool
    is_wired: bool
    """Whether every asking container reads its cards from its annotation."""
    instances: int
    """How many of each card it takes where the hook runs: one for itself, and one for each of several containers that ask."""
    pays: bool = True
    """Whether the rules ask of whole cards that they are paid for."""

    @property
    def words(self) -> set[str]:
        """What an agent must understand, by docs/records.md."""
        needed = {
            "several-cards": self.count > 1,
            "whole-cards": self.whole and self.is_valid,
            "uneven-cards": self.is_valid and not self.is_even,
        }
        return {"memory"} | {word for word, is_needed in needed.items() if is_needed}


def oracle_request(pod: Object) -> OracleRequest | None:
    """None when the pod asks for nothing of ours."""
    labels = pod["metadata"].get("labels") or {}
    notes = pod["metadata"].get("annotations") or {}
    own, is_valid = _container_units(pod)
    if not own and is_valid:
        return None
    count = _count(labels.get("aliyun.com/gpu-count", "1"))
    if count is None:
        count, is_valid = 1, False
    placement = labels.get("ack.gpushare.placement")
    is_even = not any(units % count for _, units in own)
    if not is_even and placement != "require-whole-device":
        count, is_valid = 1, False
    wishes = [notes.get("vrampack.dev/card-model", ""), notes.get("vrampack.dev/card-uuid", "")]
    is_valid &= placement in (None, "require-whole-device") and all(len(text.split(",")) <= 64 for text in wishes)
    models, uuids = map(_listed, wishes if is_valid else ("", ""))
    return OracleRequest(
        units=_for_life(own) // count,
        asked=_for_life(own),
        is_even=is_even,
        count=count,
        whole=placement == "require-whole-device",
        models=models,
        uuids=uuids,
        is_valid=is_valid,
        is_wired=_is_wired(pod),
        instances=1 if len(own) < 2 else 1 + len(own),
    )


def pays_for(wanted: OracleRequest, sizes: Iterable[int]) -> bool:
    """Whether the request pays for some of these cards, as many as it asks for; true for all that is not whole."""
    return not (wanted.whole and wanted.is_valid) or sum(sorted(sizes)[: wanted.count]) <= wanted.asked


def keep_paid(wanted: OracleRequest, cards: Iterable[_T], key: Callable[[_T], tuple[int, str]]) -> list[_T]:
    """The cards that the request may take: no choice of them costs too much, and cheaper ones are left to others.

    `key`: the units of a card, and its model.
    """
    by_size = sorted(cards, key=key)
    while sum(key(card)[0] for card in by_size[-wanted.count :]) > wanted.asked:
        del by_size[-1]
    return [card for card in by_size if key(card)[0] >= key(by_size[-wanted.count])[0]]


def is_large_enough(wanted: OracleRequest, units: int, *, is_paid: bool) -> bool:
    """Whether a card of so many units could hold the request, or its part, when empty."""
    if wanted.whole and wanted.is_valid and is_paid:
        return units > 0 and 16 * wanted.count * units >= 15 * wanted.asked
    return units >= max(1, wanted.units)


def quantity(value: object) -> int | None:
    """A whole number of units, None when it is none."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    with localcontext(Context(prec=200)):
        units = Decimal(number) * Decimal(2) ** _BINARY.get(suffix, 0)
        units = units.scaleb(_POWERS.get(suffix, 0) if suffix else int(exponent or 0))
        return int(units) if units >= 0 and units == units.to_integral_value() else None


def _container_units(pod: Object) -> tuple[list[tuple[str, int]], bool]:
    """Kind and units of each asking container, init ones first, and whether all of them can be served at all."""
    own: list[tuple[str, int]] = []
    is_valid = True
    for part in ("initContainers", "containers"):
        for container in pod["spec"].get(part) or ():
            resources = container.get("resources") or {}
            asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            if MEMORY not in asked:
                continue
            units = quantity(asked[MEMORY])
            if units is None or units > MAX_UNITS:
                is_valid = False
            if units:
                kind = "sidecar" if container.get("restartPolicy") == "Always" else "init"
                own.append(("main" if part == "containers" else kind, units))
    return own, is_valid


def _is_wired(pod: Object) -> bool:
    asking = [
        container
        for part in ("initContainers", "containers")
        for container in pod["spec"].get(part) or ()
        if any(quantity(asked.get(MEMORY)) for asked in (container.get("resources") or {}).values())
    ]
    return all("vrampack.dev/" + container["name"] in json.dumps(container.get("env")) for container in asking)


def _for_life(own: list[tuple[str, int]]) -> int:
    """Simulates the pod's start: sidecars stay, init containers come and go one by one, then all main ones run."""
    staying = peak = 0
    for kind, units in own:
        if kind == "init":
            peak = max(peak, staying + units)
        else:
            staying += units
            peak = max(peak, staying)
    return peak


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,4}", text) and int(text) > 0 else None


def _listed(text: str) -> set[str]:
    return {part.strip() for part in text.split(",")} - {""}
