"""The suites of a change, and those that a release has beside them: targets of the Makefile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUDGETS = Path(__file__).with_name("budgets")
FOR_EVERY_CHANGE: Sequence[str] = ("test", "mutations")
"""Run in the checkout itself, each time, after `make check` and before `make demo`."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One that is not run again for files for which it passed."""

    target: str
    """Also its section in `.ci/inputs`, and its `first-builds-` target."""
    needs: Sequence[str]
    """Its words in `.ci/packages`."""
    uses_qemu: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def list_suites(*, is_release: bool) -> list[Suite]:
    """The most valuable first: what users meet first."""
    # NVIDIA's modules are built for minutes each: both releases for a change, on all of their kernels before a release.
    drivers = "535-5.10 535-6.1 550-6.1 550-6.12" if is_release else "535-6.1 550-6.12"
    return [
        Suite("e2e", ("e2e",)),
        Suite("image", ("image", "base")),
        Suite("e2e-node", ("node", "base")),
        Suite("shim-test", ("shim",), uses_qemu=True),
        Suite("driver-test", ("driver",), uses_qemu=True, variables={"VRAMPACK_DRIVERS": drivers}),
    ]


RELEASE_NEEDS: Sequence[str] = ("alerts", "recipes", "hub", "release")
RELEASE_SUITES: Sequence[str] = (
    "alerts-test",
    "smoke-1.34",
    "smoke-1.35",
    "recipes",
    "recipes-hpa",
    "recipes-node",
    "release",
    "release-test",
    "release-node",
    "release-twice",
    "arm64-test",
)
"""In this order: a release is made before it is tested."""
WITHOUT_REPORT = frozenset(("release", "release-twice", "arm64-test"))
"""They are no tests, or print their own table."""


def read_budgets() -> dict[str, int]:
    """Seconds by target, on two idle cores of the reference."""
    rows = (line.split() for line in BUDGETS.read_text().splitlines() if not line.startswith("#"))
    return {target: int(seconds) for target, seconds in rows}
