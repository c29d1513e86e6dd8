"""Which back end a node gets, and what people read when the one they named cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.limits.selection import KNOWN_DRIVER_BRANCHES, MODES, Mechanism, Selection, select_back_end

BRANCHES = Path(__file__).parents[3] / "shim" / "core" / "branches.csv"
READY = NodeCapabilities("615.71.09", cgroup_version=2, has_mig=False, toolkit=ToolkitState.READY, has_hook=True)
HOOKED = replace(READY, toolkit=ToolkitState.ABSENT)

LACKING = {
    "an old driver": (replace(READY, driver_version="595.45.04"), "driver 595.45.04, 615 or newer is needed"),
    "no driver": (replace(READY, driver_version=""), "driver not there"),
    "a driver with a strange name": (replace(READY, driver_version="Ⅶ.1"), "615 or newer is needed"),
    "cgroup v1": (replace(READY, cgroup_version=1), "cgroup v1 or hybrid"),
    "MIG": (replace(READY, has_mig=True), "MIG"),
    "neither toolkit nor hook": (replace(HOOKED, has_hook=False), "CDI says no such kind, and vrampack-hook is in no"),
    "an old toolkit and no hook": (replace(READY, toolkit=ToolkitState.OLD, has_hook=False), "toolkit before 1.20.1"),
}


@pytest.mark.parametrize("name", ["auto", "native"])
def test_the_toolkit_comes_before_the_hook(name: str) -> None:
    assert select_back_end(name, READY) == Selection("native", Mechanism.TOOLKIT, "driver 615.71.09, cgroup v2")
    assert select_back_end(name, HOOKED).mechanism is Mechanism.HOOK
    assert select_back_end(name, replace(READY, toolkit=ToolkitState.OLD)).mechanism is Mechanism.HOOK
    assert select_back_end(name, replace(READY, has_hook=False)).mechanism is Mechanism.TOOLKIT


@pytest.mark.parametrize(("findings", "why"), LACKING.values(), ids=LACKING)
def test_auto_watches_where_the_driver_cannot_hold_and_says_why(findings: NodeCapabilities, why: str) -> None:
    choice = select_back_end("auto", findings)
    assert (choice.mode, choice.mechanism) == ("watch", Mechanism.WATCH)
    assert why in choice.reason


@pytest.mark.parametrize(("findings", "why"), LACKING.values(), ids=LACKING)
def test_a_named_back_end_that_cannot_work_is_refused(findings: NodeCapabilities, why: str) -> None:
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        select_back_end("native", findings)


def test_everything_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(ImpossibleBackEndError, match=r"driver .*; cgroup .*; a card .*; nobody"):
        select_back_end(
            "native", NodeCapabilities("", cgroup_version=1, has_mig=True, toolkit=ToolkitState.ABSENT, has_hook=False)
        )


@pytest.mark.parametrize(("name", "way"), [("watch", Mechanism.WATCH), ("none", Mechanism.NONE)])
def test_a_node_that_could_do_more_does_what_it_is_told(name: str, way: Mechanism) -> None:
    assert select_back_end(name, READY) == Selection(name, way, "asked for by name")


LIBRARY = replace(READY, driver_version="580.95.05", library_problem="")
MODULE = replace(LIBRARY, module_problem="")


def test_module_and_library_come_after_native_and_before_watch() -> None:
    choice = select_back_end("auto", MODULE)
    assert (choice.mode, choice.mechanism) == ("kmod", Mechanism.MODULE)
    assert "driver 580.95.05, 615 or newer is needed" in choice.reason
    choice = select_back_end("auto", LIBRARY)
    assert (choice.mode, choice.mechanism) == ("preload", Mechanism.PRELOAD)
    assert "kmod neither: the kernel module was not looked for" in choice.reason
    assert select_back_end("auto", replace(MODULE, driver_version="615.71.09")).mechanism is Mechanism.TOOLKIT


WITHOUT_MODULE = {
    "a driver that the core does not know": (
        replace(MODULE, driver_version="470.82.01"),
        "470.82.01, the module knows",
    ),
    "a newer driver": (replace(MODULE, driver_version="615.71.09", cgroup_version=1), "driver 615.71.09, the module"),
    "no driver": (replace(MODULE, driver_version=""), "driver not there"),
    "no module": (replace(MODULE, module_problem="it is not there"), "it is not there"),
    "cgroup v1 without the hook": (
        replace(MODULE, cgroup_version=1, has_hook=False),
        "cgroup v1, where containers are known by the hook's word, and vrampack-hook is in no",
    ),
}


@pytest.mark.parametrize(("findings", "why"), WITHOUT_MODULE.values(), ids=WITHOUT_MODULE)
def test_without_what_the_module_needs_auto_takes_less_and_the_name_is_refused(
    findings: NodeCapabilities, why: str
) -> None:
    assert select_back_end("auto", findings).mechanism in {Mechanism.PRELOAD, Mechanism.WATCH}
    assert why in select_back_end("auto", findings).reason
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        select_back_end("kmod", findings)


def test_the_module_needs_no_cgroup_v2_where_the_hook_is() -> None:
    assert select_back_end("kmod", replace(MODULE, cgroup_version=1)).mechanism is Mechanism.MODULE
    assert select_back_end("kmod", replace(MODULE, has_hook=False)).mechanism is Mechanism.MODULE


WITHOUT = {
    "a driver that the library does not know": (replace(LIBRARY, driver_version="470.82.01"), "driver 470.82.01, the"),
    "a branch that was never published": (replace(LIBRARY, driver_version="540.1"), "driver 540.1, the library knows"),
    "a newer driver": (replace(LIBRARY, driver_version="615.71.09", cgroup_version=1), "driver 615.71.09, the library"),
    "no driver": (replace(LIBRARY, driver_version=""), "driver not there"),
    "no library": (replace(LIBRARY, library_problem="it did not come"), "it did not come"),
}


@pytest.mark.parametrize(("findings", "why"), WITHOUT.values(), ids=WITHOUT)
def test_without_what_the_library_needs_auto_watches_and_the_name_is_refused(
    findings: NodeCapabilities, why: str
) -> None:
    assert select_back_end("auto", findings).mechanism is Mechanism.WATCH
    assert why in select_back_end("auto", findings).reason
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        select_back_end("preload", findings)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ImpossibleBackEndError, match="no back end 'cgpu'; there are auto, native,"):
        select_back_end("cgpu", READY)


@pytest.mark.parametrize("name", sorted(set(MODES) - {"auto"}))
def test_the_word_is_a_label_value(name: str) -> None:
    findings = MODULE if name in {"kmod", "preload"} else READY
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", select_back_end(name, findings).mode)


def test_the_branches_are_those_that_the_core_of_the_library_knows() -> None:
    rows = BRANCHES.read_text().splitlines()
    assert {int(row.partition(",")[0]) for row in rows[1:]} == KNOWN_DRIVER_BRANCHES
