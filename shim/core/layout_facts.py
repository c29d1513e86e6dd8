"""The facts of layouts.csv and branches.csv, from which all other files about layouts are generated, or with which they are compared."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
IOCTL_STRUCT = "ioctl"
"""The `struct` of rows that are numbers of ioctls: those that the core watches."""
NUMBER_STRUCT = "number"
"""The `struct` of rows that are plain numbers: classes, functions, indices."""


@dataclass(frozen=True, slots=True)
class LayoutFact:
    """One offset (or size, where `member` is empty; or number, where `type` is), and the branches that have it so."""

    struct: str
    field: str
    type: str
    member: str
    first_branch: int
    last_branch: int
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

    def is_valid_in(self, branch: int) -> bool:
        return self.first_branch <= branch <= self.last_branch


@dataclass(frozen=True, slots=True)
class DriverBranch:
    """A driver branch whose headers were compiled: all tags of it, the newest of which is named."""

    number: int
    tag_count: int
    newest_tag: str


def read_facts() -> list[LayoutFact]:
    with (FOLDER / "layouts.csv").open() as file:
        return [
            LayoutFact(
                row["struct"],
                row["field"],
                row["type"],
                row["member"],
                *(int(row[key]) for key in ("first", "last", "value")),
            )
            for row in csv.DictReader(file)
        ]


def read_branches() -> list[DriverBranch]:
    with (FOLDER / "branches.csv").open() as file:
        return [DriverBranch(int(row["branch"]), int(row["tags"]), row["newest"]) for row in csv.DictReader(file)]
