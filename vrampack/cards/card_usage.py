"""The measured use of a node's cards: the annotation `vrampack.dev/usage` of the node's Lease.

A record says what a pod may use; this says what was measured. It never changes a record or a limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from vrampack.cards import well_known
from vrampack.cards.node_annotations import MAX_CARDS, MAX_MEMORY_MIB
from vrampack.cards.records import RecordError, load_json, read_int

MAX_USAGE_BYTES = 32 * 1024
"""256 cards with long names are 27 KiB; a longer text is damaged."""
MAX_UUID_LENGTH = 96
FULL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class CardUsage:
    """One card as last measured."""

    used_mib: int
    """Memory in use by any process, the driver's own share included."""
    peak_mib: int
    """The use if every container that is on the card now were at its own peak; never below `used_mib`."""
    sm_percent: int | None = None
    """How busy its processes keep the multiprocessors. None: the driver does not say, as for MIG instances."""


def name_usage_lease(node_name: str) -> str:
    """The Lease of this node, in the namespace of the agents."""
    return well_known.USAGE_LEASE_PREFIX + node_name


def write_usage(cards: Mapping[str, CardUsage]) -> str:
    """The annotation's value for cards by uuid; equal figures give equal texts. Cards beyond the bound are left out."""
    listed = {
        uuid: {"used_mib": card.used_mib, "peak_mib": card.peak_mib, "sm_percent": card.sm_percent}
        for uuid, card in sorted(cards.items())[:MAX_CARDS]
    }
    return json.dumps({"v": 1, "cards": listed}, separators=(",", ":"))


def read_usage(text: str) -> dict[str, CardUsage]:
    """The usage by uuid. Raises `RecordError`, which says what is wrong with the text."""
    if len(text) > MAX_USAGE_BYTES:
        raise RecordError(f"{len(text)} characters, and {MAX_USAGE_BYTES} are the most")
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    read_int(value.get("v"), "v", low=1, high=1)
    cards = value.get("cards")
    if not isinstance(cards, dict) or len(cards) > MAX_CARDS:
        raise RecordError(f"cards: not an object of at most {MAX_CARDS} cards")
    return {uuid: _read_card(uuid, card) for uuid, card in cards.items()}


def _read_card(uuid: str, value: object) -> CardUsage:
    path = f"cards[{uuid[:MAX_UUID_LENGTH]!r}]"
    if not uuid or len(uuid) > MAX_UUID_LENGTH or not isinstance(value, dict):
        raise RecordError(f"{path}: not the uuid of a card with an object")
    percent = value.get("sm_percent")
    return CardUsage(
        read_int(value.get("used_mib"), f"{path}.used_mib", low=0, high=MAX_MEMORY_MIB),
        read_int(value.get("peak_mib"), f"{path}.peak_mib", low=0, high=MAX_MEMORY_MIB),
        None if percent is None else read_int(percent, f"{path}.sm_percent", low=0, high=FULL_PERCENT),
    )
