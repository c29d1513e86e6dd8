"""`vrampack.dev/refused` of a Node: the pods that its agent refuses to start or to keep running, and why.

Agents write it and have no right to evict anything; the extender reads it and evicts. The extender evicts only pods of that Node, so
one Node's annotation reaches no other Node's pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice

from vrampack.cards.records import RecordError, load_json, read_int

MAX_REFUSED_PODS = 32
"""Every component that watches Nodes holds the annotation in memory; 32 pods take less than 4 KiB."""
OVER_LIMIT, CARD_UNHEALTHY = "over_limit", "card_unhealthy"
REASONS_TO_EVICT_RUNNING = frozenset({OVER_LIMIT, CARD_UNHEALTHY})
"""With any other reason a container of the pod does not start."""
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")
_REASON = re.compile(r"[a-z][a-z_]{0,39}")


def write_refused(reasons: Mapping[str, str]) -> str:
    """The annotation's value, with the first 32 pods; `reasons` is one word for each uid."""
    kept = sorted(islice(reasons.items(), MAX_REFUSED_PODS))
    return json.dumps({"v": 1, "pods": {uid: {"reason": reason} for uid, reason in kept}}, separators=(",", ":"))


def read_refused(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The reason by uid, and the problems of unreadable entries: one bad pod does not hide the rest."""
    try:
        pods = _read_pods(text)
    except RecordError as error:
        return {}, (str(error),)
    reasons: dict[str, str] = {}
    problems: list[str] = []
    for uid, entry in pods.items():
        reason = entry.get("reason") if isinstance(entry, dict) else None
        if _UID.fullmatch(uid) and isinstance(reason, str) and _REASON.fullmatch(reason):
            reasons[uid] = reason
        else:
            problems.append(f"pods.{uid[:64]}.reason: not a word of at most 40 small letters")
    return reasons, tuple(problems)


def _read_pods(text: str) -> dict[str, object]:
    value = load_json(text)
    if not isinstance(value, dict):
        raise RecordError("not an object")
    read_int(value.get("v"), "v", low=1, high=1)
    pods = value.get("pods")
    if not isinstance(pods, dict) or len(pods) > MAX_REFUSED_PODS:
        raise RecordError(f"pods: not an object of at most {MAX_REFUSED_PODS} pods")
    return pods
