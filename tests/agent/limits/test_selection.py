"""Which back end a node gets, and what people read when the named one cannot work."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.agent.limits.limit_node import OLD_DRIVER, READY, LimitNode
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.driver_branches import KNOWN_DRIVER_BRANCHES
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.limits.selection import AUTO, Selection, select_back_end
from vrampack.agent.settings import AgentConfiguration

BRANCHES = Path(__file__).parents[3] / "shim" / "core" / "branches.csv"
HOOKED = replace(READY, toolkit=ToolkitState.ABSENT)
OLDER = replace(READY, driver_version=OLD_DRIVER)
"""Of a driver that module and library know."""

LACKING = {
    "an old driver": (replace(READY, driver_version="595.45.04"), "driver 595.45.04, 615 or newer is needed"),
    "no driver": (replace(READY, driver_version=""), "driver not there"),
    "a driver with a strange name": (replace(READY, driver_version="Ⅶ.1"), "615 or newer is needed"),
    "cgroup v1": (replace(READY, cgroup_version=1), "cgroup v1 or hybrid"),
    "MIG": (replace(READY, has_mig=True), "MIG"),
    "neither toolkit nor hook": (
        replace(HOOKED, has_hook=False),
        "CDI says no such kind, and no runtime is configured",
    ),
    "an old toolkit and no hook": (replace(READY, toolkit=ToolkitState.OLD, has_hook=False), "toolkit before 1.20.1"),
}


@pytest.fixture
def node(tmp_path: Path) -> LimitNode:
    return LimitNode(tmp_path)


@pytest.fixture
def bare(node: LimitNode) -> LimitNode:
    """Without module and library."""
    node.module.is_loaded = False
    node.library.shipped.unlink()
    return node


def select(mode: str, capabilities: NodeCapabilities, node: LimitNode) -> Selection:
    return select_back_end(mode, capabilities, node.context, node.rows)


def select_mode(mode: str, capabilities: NodeCapabilities, node: LimitNode) -> str:
    return select(mode, capabilities, node).row.mode


def test_the_setting_has_the_modes_of_the_table() -> None:
    words = get_args(AgentConfiguration.model_fields["enforcement"].annotation)
    assert words == (AUTO, *(row.mode for row in BACK_ENDS))


@pytest.mark.parametrize(("name", "why"), [("auto", "driver 615.71.09"), ("native", "asked for by name")])
def test_native_limits_are_preferred(name: str, why: str, node: LimitNode) -> None:
    selection = select(name, READY, node)
    assert (selection.row.mode, selection.reason) == ("native", why)


TOOLKITS = {
    "both": (READY, "by the container toolkit"),
    "the hook alone": (HOOKED, "by the createRuntime hook"),
    "an old toolkit": (replace(READY, toolkit=ToolkitState.OLD), "by the createRuntime hook"),
    "the toolkit alone": (replace(READY, has_hook=False), "by the container toolkit"),
}


@pytest.mark.parametrize(("capabilities", "by"), TOOLKITS.values(), ids=TOOLKITS)
def test_the_toolkit_comes_before_the_hook(capabilities: NodeCapabilities, by: str, node: LimitNode) -> None:
    back_end = select("native", capabilities, node).row.build(capabilities, node.context)
    assert by in back_end.traits.in_force
    assert back_end.needs_hook is ("hook" in by)


@pytest.mark.parametrize(("capabilities", "why"), LACKING.values(), ids=LACKING)
def test_auto_selects_watch_with_a_reason_where_the_driver_cannot_enforce(
    capabilities: NodeCapabilities, why: str, bare: LimitNode
) -> None:
    selection = select("auto", capabilities, bare)
    assert selection.row.mode == "watch"
    assert why in selection.reason


@pytest.mark.parametrize(("capabilities", "why"), LACKING.values(), ids=LACKING)
def test_a_named_back_end_that_cannot_work_is_refused(
    capabilities: NodeCapabilities, why: str, node: LimitNode
) -> None:
    with pytest.raises(ImpossibleBackEndError, match=f"back end native cannot work here: .*{re.escape(why)}"):
        select("native", capabilities, node)


def test_error_lists_everything_that_a_back_end_lacks(node: LimitNode) -> None:
    nothing = replace(
        READY, driver_version="", cgroup_version=1, has_mig=True, toolkit=ToolkitState.ABSENT, has_hook=False
    )
    with pytest.raises(ImpossibleBackEndError, match=r"driver .*; cgroup .*; a card .*; the limit is not set"):
        select("native", nothing, node)


@pytest.mark.parametrize("name", ["kmod", "preload", "watch", "none"])
def test_a_back_end_chosen_by_name_is_used_even_if_a_better_one_works(name: str, node: LimitNode) -> None:
    selection = select(name, OLDER if name in {"kmod", "preload"} else READY, node)
    assert (selection.row.mode, selection.reason) == (name, "asked for by name")


def test_auto_falls_back_to_watch(bare: LimitNode) -> None:
    last = select_back_end("auto", OLDER, bare.context, reversed(bare.rows))
    assert last.row.mode == "watch"


def test_module_and_library_come_after_native_and_before_watch(node: LimitNode) -> None:
    selection = select("auto", OLDER, node)
    assert selection.row.mode == "kmod"
    assert "native cannot work here: driver 580.95.05, 615 or newer is needed" in selection.reason
    node.module.is_loaded = False
    selection = select("auto", OLDER, node)
    assert selection.row.mode == "preload"
    assert "kmod neither: /proc/cgpu_km is not there" in selection.reason
    assert select_mode("auto", READY, node) == "native"


WITHOUT_MODULE = {
    "a driver that the core does not know": (
        replace(OLDER, driver_version="470.82.01"),
        "470.82.01, the module knows",
    ),
    "a newer driver": (replace(READY, cgroup_version=1), "driver 615.71.09, the module"),
    "no driver": (replace(OLDER, driver_version=""), "driver not there"),
    "cgroup v1 without the hook": (
        replace(OLDER, cgroup_version=1, has_hook=False),
        "cgroup v1, where only the hook can identify containers, and no runtime is configured",
    ),
}


@pytest.mark.parametrize(("capabilities", "why"), WITHOUT_MODULE.values(), ids=WITHOUT_MODULE)
def test_kmod_is_refused_and_skipped_by_auto_when_a_requirement_is_missing(
    capabilities: NodeCapabilities, why: str, node: LimitNode
) -> None:
    selection = select("auto", capabilities, node)
    assert selection.row.mode in {"preload", "watch"}
    assert why in selection.reason
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        select("kmod", capabilities, node)


def test_kmod_is_refused_without_its_module(bare: LimitNode) -> None:
    with pytest.raises(ImpossibleBackEndError, match="back end kmod cannot work here: /proc/cgpu_km is not there"):
        select("kmod", OLDER, bare)


def test_kmod_works_on_cgroup_v1_with_the_hook_and_on_v2_without_it(node: LimitNode) -> None:
    assert select_mode("kmod", replace(OLDER, cgroup_version=1), node) == "kmod"
    assert select_mode("kmod", replace(OLDER, has_hook=False), node) == "kmod"


WITHOUT_LIBRARY = {
    "a driver that the library does not know": (replace(OLDER, driver_version="470.82.01"), "driver 470.82.01, the"),
    "a branch that was never published": (replace(OLDER, driver_version="540.1"), "driver 540.1, the library knows"),
    "a newer driver": (replace(READY, cgroup_version=1), "driver 615.71.09, the library"),
    "no driver": (replace(OLDER, driver_version=""), "driver not there"),
}


@pytest.mark.parametrize(("capabilities", "why"), WITHOUT_LIBRARY.values(), ids=WITHOUT_LIBRARY)
def test_preload_is_refused_and_skipped_by_auto_when_a_requirement_is_missing(
    capabilities: NodeCapabilities, why: str, node: LimitNode
) -> None:
    node.module.is_loaded = False
    selection = select("auto", capabilities, node)
    assert selection.row.mode == "watch"
    assert why in selection.reason
    with pytest.raises(ImpossibleBackEndError, match=re.escape(why)):
        select("preload", capabilities, node)


def test_preload_is_refused_without_its_library(bare: LimitNode) -> None:
    with pytest.raises(ImpossibleBackEndError, match=r"libvrampack\.so is missing from this agent's installation"):
        select("preload", OLDER, bare)


@pytest.mark.parametrize(("name", "component"), [("kmod", "module"), ("preload", "library")])
def test_kmod_and_preload_are_refused_under_confidential_computing(name: str, component: str, node: LimitNode) -> None:
    confidential = replace(OLDER, has_confidential_computing=True)
    why = f"confidential computing is on: whether CUDA starts under the {component} there has not been seen"
    with pytest.raises(
        ImpossibleBackEndError, match=f"back end {name} cannot work here: {why}; use enforcement native"
    ):
        select(name, confidential, node)
    selection = select("auto", confidential, node)
    assert selection.row.mode == "watch"
    assert why in selection.reason
    assert select_mode("auto", replace(READY, has_confidential_computing=True), node) == "native"


def test_error_for_an_unknown_back_end_lists_the_known_ones(node: LimitNode) -> None:
    with pytest.raises(ImpossibleBackEndError, match="no back end 'cgpu'; there are auto, native, kmod, preload, "):
        select("cgpu", READY, node)


@pytest.mark.parametrize("row", BACK_ENDS, ids=lambda row: row.mode)
def test_the_mode_is_a_label_value(row: BackEndRow) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", row.mode)


def test_known_driver_branches_match_the_core_of_the_library() -> None:
    rows = BRANCHES.read_text().splitlines()
    assert {int(row.partition(",")[0]) for row in rows[1:]} == KNOWN_DRIVER_BRANCHES
