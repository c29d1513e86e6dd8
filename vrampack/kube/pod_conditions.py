"""The conditions in a pod's status, of which the ledger needs few."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from vrampack.kube.decoding import UNDECODABLE


class PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = msgspec.field(default=None, name="lastTransitionTime")


_CONDITIONS = msgspec.json.Decoder(list[PodCondition] | None)


def read_conditions(conditions: msgspec.Raw) -> Mapping[str, PodCondition]:
    """By type; none if they cannot be read."""
    try:
        return {condition.type: condition for condition in _CONDITIONS.decode(conditions) or ()}
    except UNDECODABLE:
        return {}


def read_failed_attempt(scheduled: PodCondition | None) -> str:
    """What its PodScheduled condition says of a failed attempt, as a digest: schedulers name every reason on up to 5,000 nodes."""
    if scheduled is None or scheduled.status != "False":
        return ""
    text = f"{scheduled.reason}\n{scheduled.message}"
    return sha256(text.encode(), usedforsecurity=False).hexdigest()[:16]
