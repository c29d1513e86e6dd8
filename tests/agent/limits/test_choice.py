"""Which back end a node gets, and what people read when the one they named cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from vrampack.agent.limits.choice import KNOWN_BRANCHES, NAMES, Choice, Way, choose
from vrampack.agent.limits.detection import Findings, Toolkit
from vrampack.agent.limits.errors import ImpossibleBackEndError

BRANCHES = Path(__file__).parents[3] / "shim" / "core" / "branches.csv"
READY = Findings("615.71.09", cgroup_version=2, has_mig=False, toolkit=Toolkit.READY, is_hooked=True)
HOOKED = replace(READY, toolkit=Toolkit.ABSENT)

LACKING = {
    "an old driver": (replace(READY, driver_version="595.45.04"), "driver 595.45.04, 615 or newer is needed"),
    "no driver": (replace(READY, driver_version=""), "driver not there"),
    "a driver with a strange name": (replace(READY, driver_version="Ⅶ.1"), "615 or newer is needed"),
    "cgroup v1": (replace(READY, cgroup_version=1), "cgroup v1 or hybrid"),
    "MIG": (replace(READY, has_mig=True), "MIG"),
    "neither toolkit nor hook": (replace(HOOKED, is_hooked=False), "CDI says no such kind, and vrampack-hook is in no"),
    "an old toolkit and no hook": (replace(READY, toolkit=Toolkit.OLD, is_hooked=False), "toolkit before 1.20.1"),
}


@pytest.mark.parametrize("name", ["auto", "native"])
def test_the_toolkit_comes_before_the_hook(name: str) -> None:
    assert choose(name, READY) == Choice("native", Way.TOOLKIT, "driver 615.71.09, cgroup v2")
    assert choose(name, HOOKED).way is Way.HOOK
    assert choose(name, replace(READY, toolkit=Toolkit.OLD)).way is Way.HOOK
    assert choose(name, replace(READY, is_hooked=False)).way is Way.TOOLKIT


@pytest.mark.parametrize(("findings", "why"), LACKING.values(), ids=LACKING)
def test_auto_watches_where_the_driver_cannot_hold_and_says_why(findings: Findings, why: str) -> None:
    choice = choose("auto", findings)
    assert (choice.word, choice.way) == ("watch", Way.WATCH)
    assert why in choice.why


@pytest.mark.parametrize(("findings", "why"), LACKING.values(), ids=LACKING)
def test_a_named_back_end_that_cannot_work_is_refused(findings: Findings, why: str) -> None:
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        choose("native", findings)


def test_everything_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(ImpossibleBackEndError, match=r"driver .*; cgroup .*; a card .*; nobody"):
        choose("native", Findings("", cgroup_version=1, has_mig=True, toolkit=Toolkit.ABSENT, is_hooked=False))


@pytest.mark.parametrize(("name", "way"), [("watch", Way.WATCH), ("none", Way.NOBODY)])
def test_a_node_that_could_do_more_does_what_it_is_told(name: str, way: Way) -> None:
    assert choose(name, READY) == Choice(name, way, "asked for by name")


LIBRARY = replace(READY, driver_version="580.95.05", without_library="")
MODULE = replace(LIBRARY, without_module="")


def test_module_and_library_come_after_native_and_before_watch() -> None:
    choice = choose("auto", MODULE)
    assert (choice.word, choice.way) == ("kmod", Way.MODULE)
    assert "driver 580.95.05, 615 or newer is needed" in choice.why
    choice = choose("auto", LIBRARY)
    assert (choice.word, choice.way) == ("preload", Way.PRELOAD)
    assert "kmod neither: the kernel module was not looked for" in choice.why
    assert choose("auto", replace(MODULE, driver_version="615.71.09")).way is Way.TOOLKIT


WITHOUT_MODULE = {
    "a driver that the core does not know": (
        replace(MODULE, driver_version="470.82.01"),
        "470.82.01, the module knows",
    ),
    "a newer driver": (replace(MODULE, driver_version="615.71.09", cgroup_version=1), "driver 615.71.09, the module"),
    "no driver": (replace(MODULE, driver_version=""), "driver not there"),
    "no module": (replace(MODULE, without_module="it is not there"), "it is not there"),
    "cgroup v1 without the hook": (
        replace(MODULE, cgroup_version=1, is_hooked=False),
        "cgroup v1, where containers are known by the hook's word, and vrampack-hook is in no",
    ),
}


@pytest.mark.parametrize(("findings", "why"), WITHOUT_MODULE.values(), ids=WITHOUT_MODULE)
def test_without_what_the_module_needs_auto_takes_less_and_the_name_is_refused(findings: Findings, why: str) -> None:
    assert choose("auto", findings).way in {Way.PRELOAD, Way.WATCH}
    assert why in choose("auto", findings).why
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        choose("kmod", findings)


def test_the_module_needs_no_cgroup_v2_where_the_hook_is() -> None:
    assert choose("kmod", replace(MODULE, cgroup_version=1)).way is Way.MODULE
    assert choose("kmod", replace(MODULE, is_hooked=False)).way is Way.MODULE


WITHOUT = {
    "a driver that the library does not know": (replace(LIBRARY, driver_version="470.82.01"), "driver 470.82.01, the"),
    "a branch that was never published": (replace(LIBRARY, driver_version="540.1"), "driver 540.1, the library knows"),
    "a newer driver": (replace(LIBRARY, driver_version="615.71.09", cgroup_version=1), "driver 615.71.09, the library"),
    "no driver": (replace(LIBRARY, driver_version=""), "driver not there"),
    "no library": (replace(LIBRARY, without_library="it did not come"), "it did not come"),
}


@pytest.mark.parametrize(("findings", "why"), WITHOUT.values(), ids=WITHOUT)
def test_without_what_the_library_needs_auto_watches_and_the_name_is_refused(findings: Findings, why: str) -> None:
    assert choose("auto", findings).way is Way.WATCH
    assert why in choose("auto", findings).why
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        choose("preload", findings)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ImpossibleBackEndError, match="no back end 'cgpu'; there are auto, native,"):
        choose("cgpu", READY)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"auto"}))
def test_the_word_is_a_label_value(name: str) -> None:
    findings = MODULE if name in {"kmod", "preload"} else READY
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", choose(name, findings).word)


def test_the_branches_are_those_that_the_core_of_the_library_knows() -> None:
    rows = BRANCHES.read_text().splitlines()
    assert {int(row.partition(",")[0]) for row in rows[1:]} == KNOWN_BRANCHES
