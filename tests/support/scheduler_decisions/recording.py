"""A recording of decisions, and its file.

The file is JSON, one decision a row, nodes by their position; compressed, since the scores alone are half a million.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parents[2] / "simulator" / "decisions"
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """What a node offers."""

    cpu_milli: int
    memory_mib: int
    units: int


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One pod, in the order in which they were decided. Nodes are positions in the cluster."""

    request: tuple[int, int, int]
    """Thousandths of a CPU, MiB, units."""
    candidates: tuple[int, ...]
    """The nodes that were scored, ascending; a single candidate is not scored."""
    emptiness: tuple[int, ...]
    balance: tuple[int, ...]
    """The scores of NodeResourcesFit and NodeResourcesBalancedAllocation, of each candidate."""
    extender: tuple[int, ...]
    """What the extender added; nothing for a pod that it does not see."""
    evaluated: int
    """How many nodes were looked at, as the scheduler counts them."""
    chosen: int
    """`NOWHERE` where no node had room."""


@dataclass(frozen=True, slots=True)
class DecisionRecording:
    """All decisions over one cluster that was empty before."""

    version: str
    """Of kube-scheduler."""
    parallelism: int
    """Its threads; 16 is the default."""
    nodes: tuple[RecordedNode, ...]
    decisions: tuple[RecordedDecision, ...]


class _Row(msgspec.Struct, array_like=True, frozen=True):
    request: tuple[int, int, int]
    candidates: str
    """Bits, as a hexadecimal number."""
    emptiness: str
    """A byte for each candidate; so is the other score."""
    balance: str
    extender: tuple[int, ...]
    evaluated: int
    chosen: int


class _File(msgspec.Struct, frozen=True):
    version: str
    parallelism: int
    nodes: tuple[tuple[int, int, int], ...]
    decisions: tuple[_Row, ...]


def read_decisions(name: str) -> DecisionRecording:
    given = msgspec.json.decode(lzma.decompress(_path(name).read_bytes()), type=_File)
    return DecisionRecording(
        given.version,
        given.parallelism,
        tuple(RecordedNode(*row) for row in given.nodes),
        tuple(_read_row(row) for row in given.decisions),
    )


def write_decisions(name: str, recording: DecisionRecording) -> Path:
    """Keep it; returns the file."""
    kept = _File(
        recording.version,
        recording.parallelism,
        tuple((node.cpu_milli, node.memory_mib, node.units) for node in recording.nodes),
        tuple(_write_row(decision) for decision in recording.decisions),
    )
    FOLDER.mkdir(exist_ok=True)
    _path(name).write_bytes(lzma.compress(msgspec.json.encode(kept), preset=9))
    return _path(name)


def _write_row(decision: RecordedDecision) -> _Row:
    return _Row(
        decision.request,
        f"{sum(1 << position for position in decision.candidates):x}",
        bytes(decision.emptiness).hex(),
        bytes(decision.balance).hex(),
        decision.extender,
        decision.evaluated,
        decision.chosen,
    )


def _read_row(row: _Row) -> RecordedDecision:
    bits = int(row.candidates, 16)
    return RecordedDecision(
        row.request,
        tuple(position for position in range(bits.bit_length()) if bits >> position & 1),
        tuple(bytes.fromhex(row.emptiness)),
        tuple(bytes.fromhex(row.balance)),
        row.extender,
        row.evaluated,
        row.chosen,
    )


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json.xz"
