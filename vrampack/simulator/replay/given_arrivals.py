"""Arrivals from a CSV file: `pod,arrival,lifetime,gpu_mem_gib`, one pod per row, in any unit of time."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path

import msgspec

from vrampack.kube.objects import build_admission_entry
from vrampack.simulator.resource_kinds import Object

COLUMNS = ("pod", "arrival", "lifetime", "gpu_mem_gib")
NAMESPACE = "arrivals"


class ArrivalFileError(ValueError):
    """The file cannot be used; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod that is not bound yet."""

    pod: Object
    at: float = 0.0
    lifetime: float | None = None
    """The time from its placement to its end; None: it stays."""


def read_arrivals(file: Path, *, unit_mib: int, resource: str) -> list[Arrival]:
    """The pods of the file in the order of their arrival, each rounded up to whole units. Raises `ArrivalFileError`."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            reader = csv.DictReader(text)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ArrivalFileError(f"{file}:1: column {missing[0]} is missing; the columns are {','.join(COLUMNS)}")
            rows = [(f"{file}:{reader.line_num}", row) for row in reader]
    except OSError as error:
        raise ArrivalFileError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ArrivalFileError(f"{file}: not UTF-8: {error}") from error
    arrivals = [_read_arrival(where, row, unit_mib, resource) for where, row in rows]
    names = [each.pod["metadata"]["name"] for each in arrivals]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise ArrivalFileError(f"{file}: pod {twice} appears twice; give each row a name of its own")
    return sorted(arrivals, key=lambda each: each.at)


def _read_arrival(where: str, row: Mapping[str, str | None], unit_mib: int, resource: str) -> Arrival:
    at, lifetime = _read_number(where, row, "arrival"), _read_number(where, row, "lifetime")
    units = ceil(_read_number(where, row, "gpu_mem_gib") * 1024 / unit_mib)
    if not units:
        raise ArrivalFileError(f"{where}: gpu_mem_gib: found 0; give a number above 0")
    return Arrival(_build_pod(row["pod"] or where.rpartition(":")[2], units, resource), at, lifetime)


def _read_number(where: str, row: Mapping[str, str | None], column: str) -> float:
    text = row[column] or ""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number < 0 or not isfinite(number):
        raise ArrivalFileError(f"{where}: {column}: found {text!r}; give a number from 0 up")
    return number


def _build_pod(name: str, units: int, resource: str) -> Object:
    """A pod as admission leaves it."""
    container = {
        "name": "main",
        "resources": {"limits": {resource: str(units)}},
        "env": [msgspec.to_builtins(build_admission_entry("main"))],
    }
    metadata = {"namespace": NAMESPACE, "name": name, "uid": f"{NAMESPACE}/{name}"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
