"""The recordings of the real scheduler: one JSON file per scenario, written by tests/e2e/test_scheduler_recordings.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "simulator" / "recorded"

_EXTENDER = re.compile(r"127\.0\.0\.1:\d+")


def read_recording_of(name: str) -> Any:  # noqa: ANN401 - a recording, compared as a whole
    return json.loads(_path(name).read_text())["recording"]


def write_recording_of(name: str, recording: object, *, version: str) -> None:
    """Keep it, with what it was recorded from."""
    FOLDER.mkdir(exist_ok=True)
    kept = {"scenario": name, "kube-scheduler": version, "recording": recording}
    _path(name).write_text(json.dumps(kept, indent=1) + "\n")


def recorded_names() -> set[str]:
    return {json.loads(path.read_text())["scenario"] for path in FOLDER.glob("*.json")}


def without_ports(recording: object) -> Any:  # noqa: ANN401 - a recording
    """The extender's port differs every time, and appears in messages."""
    return json.loads(_EXTENDER.sub("EXTENDER", json.dumps(recording)))


def _path(name: str) -> Path:
    return FOLDER / (re.sub(r"[^a-z0-9]+", "-", name).strip("-") + ".json")
