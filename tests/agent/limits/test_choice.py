"""Which back end a node gets, and what people read when the one they named cannot be."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.limits.choice import NAMES, Choice, Way, choose
from agent.limits.detection import Findings, Toolkit
from agent.limits.errors import ImpossibleBackEndError

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


@pytest.mark.parametrize("name", ["kmod", "preload"])
def test_back_ends_of_later_versions_are_known_by_name(name: str) -> None:
    with pytest.raises(ImpossibleBackEndError, match=f"{name} is not part of this version"):
        choose(name, READY)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ImpossibleBackEndError, match="no back end 'cgpu'; there are auto, native,"):
        choose("cgpu", READY)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"auto", "kmod", "preload"}))
def test_the_word_is_a_label_value(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", choose(name, READY).word)
