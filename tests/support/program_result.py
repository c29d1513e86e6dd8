"""What a program under test left behind, wherever it ran: in this machine, in a container or in a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass

TIMEOUT_SECONDS = 60
"""For one program, from its start to its end."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()
