"""Which back end holds the limits of this node: the one that was named, or the best that works here.

`auto` takes them in the order of `Way`. A name that cannot work here is refused, with what is missing: a node whose
operator asked for a limit must not run without one because a driver is old.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vrampack.agent.limits.cgroups import CGROUP_V2
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.errors import ImpossibleBackEndError

AUTO = "auto"
MODES = (AUTO, "native", "kmod", "preload", "watch", "none")
"""What the setting may say."""
KNOWN_DRIVER_BRANCHES = frozenset({515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595})
"""Driver branches whose messages module and library can read: those of `shim/core`, which a test compares. No others are held."""
MIN_NATIVE_BRANCH = 615
"""The first driver branch with limits per cgroup."""


class Mechanism(StrEnum):
    """How the limits get into force, best first."""

    TOOLKIT = "native, by the container toolkit"
    HOOK = "native, by the createRuntime hook"
    MODULE = "kmod"
    PRELOAD = "preload"
    WATCH = "watch"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen. `word` is the value of the node label `vrampack.dev/enforcement` and of the metric."""

    mode: str
    mechanism: Mechanism
    reason: str


def select_back_end(mode: str, findings: NodeCapabilities) -> Selection:
    """Raises `ImpossibleBackEndError` for a name that is unknown or cannot work on this node."""
    if mode not in MODES:
        raise ImpossibleBackEndError(f"no back end {mode!r}; there are {', '.join(MODES)}")
    if mode == "none":
        return Selection("none", Mechanism.NONE, "asked for by name")
    if mode == "watch":
        return Selection("watch", Mechanism.WATCH, "asked for by name")
    if mode in {"kmod", "preload"}:
        return _select_named(mode, findings)
    missing = find_native_problem(findings)
    if not missing:
        way = Mechanism.TOOLKIT if findings.toolkit is ToolkitState.READY else Mechanism.HOOK
        return Selection("native", way, f"driver {findings.driver_version}, cgroup v2")
    if mode == "native":
        raise ImpossibleBackEndError(f"back end native cannot work here: {missing}")
    return _select_best_of_ours(findings, f"native cannot work here: {missing}")


def find_kmod_problem(findings: NodeCapabilities) -> str:
    """Everything that is missing for the kernel module; empty when nothing is."""
    missing = [_find_branch_problem(findings, "module"), findings.module_problem]
    if findings.cgroup_version != CGROUP_V2 and not findings.has_hook:
        missing.append(
            "cgroup v1, where containers are known by the hook's word, and vrampack-hook is in no runtime's files"
        )
    return "; ".join(filter(None, missing))


def find_preload_problem(findings: NodeCapabilities) -> str:
    """Everything that is missing for the library under libc; empty when nothing is."""
    return "; ".join(filter(None, [_find_branch_problem(findings, "library"), findings.library_problem]))


def _find_branch_problem(findings: NodeCapabilities, component: str) -> str:
    if findings.driver_branch in KNOWN_DRIVER_BRANCHES:
        return ""
    branches = ", ".join(map(str, sorted(KNOWN_DRIVER_BRANCHES)))
    return f"driver {findings.driver_version or 'not there'}, the {component} knows {branches}"


def _select_best_of_ours(findings: NodeCapabilities, reason: str) -> Selection:
    """The best of what this project brings itself; `why` says what there is none better for."""
    for way, missing in (
        (Mechanism.MODULE, find_kmod_problem(findings)),
        (Mechanism.PRELOAD, find_preload_problem(findings)),
    ):
        if not missing:
            return Selection(way.value, way, f"driver {findings.driver_version}; {reason}")
        reason += f"; {way} neither: {missing}"
    return Selection("watch", Mechanism.WATCH, reason)


def _select_named(mode: str, findings: NodeCapabilities) -> Selection:
    way, missing = (
        (Mechanism.MODULE, find_kmod_problem(findings))
        if mode == "kmod"
        else (Mechanism.PRELOAD, find_preload_problem(findings))
    )
    if missing:
        raise ImpossibleBackEndError(f"back end {mode} cannot work here: {missing}")
    return Selection(mode, way, f"asked for by name, driver {findings.driver_version}")


def find_native_problem(findings: NodeCapabilities) -> str:
    """Everything that is missing for the driver's own limits, in one sentence; empty when nothing is."""
    missing = []
    if findings.driver_branch < MIN_NATIVE_BRANCH:
        missing.append(f"driver {findings.driver_version or 'not there'}, {MIN_NATIVE_BRANCH} or newer is needed")
    if findings.cgroup_version != CGROUP_V2:
        missing.append("cgroup v1 or hybrid, v2 is needed")
    if findings.has_mig:
        missing.append("a card is in MIG mode")
    if findings.toolkit is not ToolkitState.READY and not findings.has_hook:
        missing.append(
            f"nobody sets the limit: CDI says {findings.toolkit}, and vrampack-hook is in no runtime's files"
        )
    return "; ".join(missing)
