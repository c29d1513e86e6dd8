"""What a row is, and all rows together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One line of one file, correct and broken, without its indentation."""

    file: str
    old: str
    new: str
    test: str
    """The node id of a fast test that fails on the broken line."""

    def mutate(self, text: str) -> str:
        """The file with the line changed. The line must occur once."""
        lines = text.splitlines(keepends=True)
        (at,) = (at for at, line in enumerate(lines) if line.strip() == self.old)
        lines[at] = lines[at].replace(self.old, self.new)
        return "".join(lines)

    @property
    def test_file(self) -> str:
        return self.test.partition("::")[0]


def join_mutations(*rooms: Mapping[str, Mutation]) -> dict[str, Mutation]:
    """All rows by name. Raises `ValueError` when a name appears twice."""
    rows: dict[str, Mutation] = {}
    for room in rooms:
        doubled = rows.keys() & room.keys()
        if doubled:
            raise ValueError(f"rows of one name: {sorted(doubled)}")
        rows |= room
    return rows
