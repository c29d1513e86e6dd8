"""What a program in a limited container observes, whether the library or the module limits it: run under both.

Differences are not here: docs/preload.md lists what the library cannot catch, and its tests show each.
"""

from __future__ import annotations

from dataclasses import dataclass

REFUSED = "error 2: cudaErrorMemoryAllocation"
MANAGED_REFUSED = "error 1: cudaErrorInvalidValue"
NOT_OFFERED = "error 999: cudaErrorUnknown (status 0x56)"
LIMIT_MIB = 4301
TOTAL = "Total amount of global memory: 4301 MBytes (4509925376 bytes)"


@dataclass(frozen=True, slots=True)
class LimitCase:
    """A program of `tests/fakes/driver/programs`, and every line it prints."""

    program: str
    arguments: tuple[str, ...]
    said: tuple[str, ...]
    limit_mib: int = LIMIT_MIB

    def __str__(self) -> str:
        return " ".join((self.program, *self.arguments))


def limit_case(words: str, *said: str) -> LimitCase:
    program, *arguments = words.split()
    return LimitCase(program, tuple(arguments), said)


CASES = (
    limit_case("app --total --free", TOTAL, "free 4301 MiB of 4301 MiB"),
    limit_case("app 4300 --then 2 --then 1 --then 1", "allocated 4300 MiB", REFUSED, "allocated 1 MiB", REFUSED),
    limit_case("app 4302", REFUSED),
    limit_case("app 3193 --then 1109 --then 1108 --free", "allocated 3193 MiB", REFUSED, "allocated 1108 MiB", "free 0 MiB of 4301 MiB"),
    limit_case("app --xfer 4000 --then 302", "allocated 4000 MiB", REFUSED),
    limit_case("app --short 4000 --then 302", "allocated 4000 MiB", REFUSED),
    limit_case("app --heap 4000 --then 302", "allocated 4000 MiB", REFUSED),
    limit_case("app --surface 1", NOT_OFFERED),
    limit_case("app --pages 2m 4000 --then 302", "allocated 4000 MiB", REFUSED),
    limit_case("app --dup 4000 --then 302 --then 300", "allocated 4000 MiB", "duplicated, and the first handle freed", REFUSED, "allocated 300 MiB"),
    limit_case("app --subtree 4300", "allocated 4300 MiB", "freed the device with all below it", "allocated 4300 MiB"),
    limit_case("app --loop 50 2200 2300", "100 given, 0 refused"),
    limit_case("app --managed 1", MANAGED_REFUSED),
    limit_case("app --pool 2", "mapped 2 MiB of semaphores", MANAGED_REFUSED),
    limit_case("steps open take 4000 take 302 free take 4300", "allocated 4000 MiB", REFUSED, "freed: 0", "allocated 4300 MiB"),
    limit_case("steps open take 4000 close open take 4300", "allocated 4000 MiB", "closed: 0", "allocated 4300 MiB"),
    limit_case("steps open take 4000 dup take 302 take 300", "allocated 4000 MiB", REFUSED, "allocated 300 MiB"),
    limit_case("steps open take 4000 exec open take 4300", "allocated 4000 MiB", "allocated 4300 MiB"),
    limit_case("steps open take 3000 fork open take 1302 take 1300 take 1300", "allocated 3000 MiB", REFUSED, "allocated 1300 MiB", "allocated 1300 MiB"),
    limit_case("steps wrap open take 4300 take 2", "allocated 4300 MiB", REFUSED),
    limit_case("nvidia-smi --query-gpu=memory.total,memory.used,memory.free --format=csv,noheader,nounits", "4301, 0, 4301"),
)  # fmt: skip

SURFACES = (
    limit_case("app --surface 1", NOT_OFFERED),
    limit_case("app --surface 3000 3000", NOT_OFFERED),
    limit_case("app --surface --xfer 3000 3000", NOT_OFFERED),
    limit_case("app --heap 4000 --then 302 --then 300", "allocated 4000 MiB", REFUSED, "allocated 300 MiB"),
)  # fmt: skip
"""For the drivers of `SURFACE_VERSIONS`, whose heap call takes memory by the size of a surface too: no
back end counts that, so it is not offered; the rest of the call works as ever. Twice 3000 MiB is over the limit; one call takes < 4 GiB."""

SURFACE_VERSIONS = ("515.43.04", "520.61.05", "525.147.05")
"""Of each branch that has it. No kernel module simulates one: the newest with one device for all minors is of 535."""
