"""Reads the files of `benchmarks/data`."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path

from vrampack.cards.host_room import HostResources
from vrampack.cards.request import CardRequest
from vrampack.simulator.packing.packed_cluster import SimulatedNode, SimulatedPod

OPENB_TRACES = (
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
)
UNITS_PER_CARD = 1000
"""Openb counts thousandths of a card, each of which is one unit of the ledger."""


def read_openb_nodes(folder: Path) -> list[SimulatedNode]:
    """The GPU nodes, in the order of the file."""
    return [
        SimulatedNode(
            row["sn"],
            (UNITS_PER_CARD,) * int(row["gpu"]),
            row["model"],
            HostResources(int(row["cpu_milli"]), int(row["memory_mib"])),
        )
        for row in _read_rows(folder / "openb_node_list_gpu_node.csv")
    ]


def read_openb_pods(folder: Path, trace: str) -> list[SimulatedPod]:
    """The pods of one trace, in the order of the file."""
    return [
        SimulatedPod(_read_card_request(row), HostResources(int(row["cpu_milli"]), int(row["memory_mib"])))
        for row in _read_rows(folder / f"openb_pod_list_{trace}.csv.gz")
    ]


def read_card_cluster(folder: Path, cluster: str) -> list[SimulatedNode]:
    """A cluster of the GiB benchmark: one unit is one GiB, and hosts have unlimited CPU and memory."""
    cards: dict[str, list[tuple[int, str]]] = {}
    for row in _read_rows(folder / f"cluster_{cluster}.csv"):
        cards.setdefault(row["node"], []).append((int(row["card_mem_gib"]), row["label"]))
    return [
        SimulatedNode(name, tuple(units for units, _ in on_node), on_node[0][1], None)
        for name, on_node in cards.items()
    ]


def read_request_mix(folder: Path, mix: str) -> Mapping[int, float]:
    """The weight of each request size in GiB."""
    rows = [row for row in _read_rows(folder / "request_mixes.csv") if row["mix"] == mix]
    return {int(row["gpu_mem_gib"]): float(row["weight"]) for row in rows}


def _read_card_request(row: Mapping[str, str]) -> CardRequest | None:
    count = int(row["num_gpu"])
    if not count:
        return None
    models = frozenset(model for model in row.get("gpu_spec", "").split("|") if model)
    return CardRequest(int(row["gpu_milli"]), count, models=models or None)


def _read_rows(file: Path) -> Iterator[Mapping[str, str]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as text:
        yield from csv.DictReader(text)
