"""Which back end holds the limits of this node: the one that was named, or the best that works here.

`auto` takes them in the order of `Way`. A name that cannot work here is refused, with what is missing: a node whose
operator asked for a limit must not run without one because a driver is old.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vrampack.agent.limits.detection import Findings, Toolkit
from vrampack.agent.limits.errors import ImpossibleBackEndError

AUTO = "auto"
NAMES = (AUTO, "native", "kmod", "preload", "watch", "none")
"""What the setting may say."""
KNOWN_BRANCHES = frozenset({515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595})
"""Driver branches whose messages module and library can read: those of `shim/core`, which a test compares. No others are held."""
NATIVE_BRANCH = 615
"""The first driver branch with limits per cgroup."""


class Way(StrEnum):
    """How the limits get into force, best first."""

    TOOLKIT = "native, by the container toolkit"
    HOOK = "native, by the createRuntime hook"
    MODULE = "kmod"
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
    if name == "none":
        return Choice("none", Way.NOBODY, "asked for by name")
    if name == "watch":
        return Choice("watch", Way.WATCH, "asked for by name")
    if name in {"kmod", "preload"}:
        return _named(name, findings)
    missing = why_not_native(findings)
    if not missing:
        way = Way.TOOLKIT if findings.toolkit is Toolkit.READY else Way.HOOK
        return Choice("native", way, f"driver {findings.driver_version}, cgroup v2")
    if name == "native":
        raise ImpossibleBackEndError(f"back end native cannot work here: {missing}")
    return _of_ours(findings, f"native cannot work here: {missing}")


def why_not_kmod(findings: Findings) -> str:
    """Everything that is missing for the kernel module; empty when nothing is."""
    missing = [_unknown_driver(findings, "module"), findings.without_module]
    if findings.cgroup_version != 2 and not findings.is_hooked:  # noqa: PLR2004
        missing.append(
            "cgroup v1, where containers are known by the hook's word, and vrampack-hook is in no runtime's files"
        )
    return "; ".join(filter(None, missing))


def why_not_preload(findings: Findings) -> str:
    """Everything that is missing for the library under libc; empty when nothing is."""
    return "; ".join(filter(None, [_unknown_driver(findings, "library"), findings.without_library]))


def _unknown_driver(findings: Findings, who: str) -> str:
    if findings.driver_branch in KNOWN_BRANCHES:
        return ""
    branches = ", ".join(map(str, sorted(KNOWN_BRANCHES)))
    return f"driver {findings.driver_version or 'not there'}, the {who} knows {branches}"


def _of_ours(findings: Findings, why: str) -> Choice:
    """The best of what this project brings itself; `why` says what there is none better for."""
    for way, missing in ((Way.MODULE, why_not_kmod(findings)), (Way.PRELOAD, why_not_preload(findings))):
        if not missing:
            return Choice(way.value, way, f"driver {findings.driver_version}; {why}")
        why += f"; {way} neither: {missing}"
    return Choice("watch", Way.WATCH, why)


def _named(name: str, findings: Findings) -> Choice:
    way, missing = (Way.MODULE, why_not_kmod(findings)) if name == "kmod" else (Way.PRELOAD, why_not_preload(findings))
    if missing:
        raise ImpossibleBackEndError(f"back end {name} cannot work here: {missing}")
    return Choice(name, way, f"asked for by name, driver {findings.driver_version}")


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
