"""Which back end holds the limits of this node: the one that was named, or the best that works here.

`auto` takes them in the order of `Way`. A name that cannot work here is refused, with what is missing: a node whose
operator asked for a limit must not run without one because a driver is old.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.limits.detection import Findings, Toolkit
from agent.limits.errors import ImpossibleBackEndError

AUTO = "auto"
NAMES = (AUTO, "native", "kmod", "preload", "watch", "none")
"""What the setting may say."""
LATER = ("kmod",)
"""Known names without a back end in this version: the kernel module."""
KNOWN_BRANCHES = frozenset({515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595})
"""Driver branches whose messages the library can read: those of `shim/core`, which a test compares. In others it holds nobody."""
NATIVE_BRANCH = 615
"""The first driver branch with limits per cgroup."""


class Way(StrEnum):
    """How the limits get into force, best first."""

    TOOLKIT = "native, by the container toolkit"
    HOOK = "native, by the createRuntime hook"
    PRELOAD = "preload"
    WATCH = "watch"
    NOBODY = "none"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen. `word` is the value of the node label `vrampack.dev/enforcement` and of the metric."""

    word: str
    way: Way
    why: str


def choose(name: str, findings: Findings) -> Choice:
    """Raises `ImpossibleBackEndError` for a name that is unknown or cannot work on this node."""
    if name not in NAMES:
        raise ImpossibleBackEndError(f"no back end {name!r}; there are {', '.join(NAMES)}")
    if name in LATER:
        raise ImpossibleBackEndError(
            f"back end {name} is not part of this version; use auto, native, preload, watch or none"
        )
    if name == "none":
        return Choice("none", Way.NOBODY, "asked for by name")
    if name == "watch":
        return Choice("watch", Way.WATCH, "asked for by name")
    if name == "preload":
        return _preload(findings)
    missing = why_not_native(findings)
    if not missing:
        way = Way.TOOLKIT if findings.toolkit is Toolkit.READY else Way.HOOK
        return Choice("native", way, f"driver {findings.driver_version}, cgroup v2")
    if name == "native":
        raise ImpossibleBackEndError(f"back end native cannot work here: {missing}")
    lacking = why_not_preload(findings)
    if not lacking:
        return Choice("preload", Way.PRELOAD, f"driver {findings.driver_version}; native cannot work here: {missing}")
    return Choice("watch", Way.WATCH, f"native cannot work here: {missing}; preload neither: {lacking}")


def why_not_preload(findings: Findings) -> str:
    """Everything that is missing for the library under libc; empty when nothing is."""
    missing = []
    if findings.driver_branch not in KNOWN_BRANCHES:
        branches = ", ".join(map(str, sorted(KNOWN_BRANCHES)))
        missing.append(f"driver {findings.driver_version or 'not there'}, the library knows {branches}")
    if findings.without_library:
        missing.append(findings.without_library)
    return "; ".join(missing)


def _preload(findings: Findings) -> Choice:
    missing = why_not_preload(findings)
    if missing:
        raise ImpossibleBackEndError(f"back end preload cannot work here: {missing}")
    return Choice("preload", Way.PRELOAD, f"asked for by name, driver {findings.driver_version}")


def why_not_native(findings: Findings) -> str:
    """Everything that is missing for the driver's own limits, in one sentence; empty when nothing is."""
    missing = []
    if findings.driver_branch < NATIVE_BRANCH:
        missing.append(f"driver {findings.driver_version or 'not there'}, {NATIVE_BRANCH} or newer is needed")
    if findings.cgroup_version != 2:  # noqa: PLR2004
        missing.append("cgroup v1 or hybrid, v2 is needed")
    if findings.has_mig:
        missing.append("a card is in MIG mode")
    if findings.toolkit is not Toolkit.READY and not findings.is_hooked:
        missing.append(
            f"nobody sets the limit: CDI says {findings.toolkit}, and vrampack-hook is in no runtime's files"
        )
    return "; ".join(missing)
