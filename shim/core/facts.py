"""The facts of layouts.csv and branches.csv, which every other file about layouts is made of or checked against."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
NUMBERS = "number"
"""The `struct` of rows that are plain numbers: classes, functions, indices."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One offset (or size, where `member` is empty; or number, where `type` is), and the branches that have it so."""

    struct: str
    field: str
    type: str
    member: str
    first: int
    last: int
    value: int

    @property
    def name(self) -> str:
        return f"{self.struct}_{self.field}"

    @property
    def expression(self) -> str:
        """In C, on NVIDIA's own headers."""
        if not self.type:
            return self.member
        return f"offsetof({self.type}, {self.member})" if self.member else f"sizeof({self.type})"

    def holds_in(self, branch: int) -> bool:
        return self.first <= branch <= self.last


@dataclass(frozen=True, slots=True)
class Branch:
    """A driver branch whose headers were compiled: all tags of it, the newest of which is named."""

    number: int
    tags: int
    newest: str


def facts() -> list[Fact]:
    with (FOLDER / "layouts.csv").open() as file:
        return [
            Fact(
                row["struct"],
                row["field"],
                row["type"],
                row["member"],
                *(int(row[key]) for key in ("first", "last", "value")),
            )
            for row in csv.DictReader(file)
        ]


def branches() -> list[Branch]:
    with (FOLDER / "branches.csv").open() as file:
        return [Branch(int(row["branch"]), int(row["tags"]), row["newest"]) for row in csv.DictReader(file)]
