"""Reads the transcript of verb calls: what the scheduler asked about one pod, in which order, and the answers."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class VerbCallLine:
    """One verb call."""

    verb: str
    request: Any  # Any: as the scheduler wrote it, asserted where it is read
    answer: Any  # Any: as it was answered, None where the scheduler heard nothing

    @property
    def pod(self) -> str:
        """The name of the pod it is about."""
        return str(self.request["PodName"] if self.verb == "bind" else self.request["Pod"]["metadata"]["name"])


def read_verb_calls(transcript: Path) -> dict[str, list[VerbCallLine]]:
    """All calls so far by pod, each pod's in the order in which they were answered."""
    found: defaultdict[str, list[VerbCallLine]] = defaultdict(list)
    for line in map(json.loads, transcript.read_text().splitlines()):
        call = VerbCallLine(line["verb"], line["request"], line["answer"])
        found[call.pod].append(call)
    return found
