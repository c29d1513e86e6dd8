"""One source of offsets: the generated files are up to date, and a wrong offset is noticed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.core.header_check import find_unread_functions
from shim.core.layout_facts import read_branches, read_facts
from shim.core.layout_generator import render_ioctls, render_layouts
from tests.shim.core.building import CORE, build_program
from tests.shim.core.script import NotSoError
from tests.shim.core.traces import CoreTrace
from tests.shim.core.wire import BRANCHES, CoreWire

FIELDS = re.findall(r"uint16_t (\w+);", (CORE / "layouts.h").read_text())


def test_the_generated_headers_are_fresh() -> None:
    assert (CORE / "ioctls.h").read_text() == render_ioctls()
    assert (CORE / "layouts.h").read_text() == render_layouts()


def test_every_fact_refers_to_known_branches() -> None:
    known = [branch.number for branch in read_branches()]
    assert known == list(BRANCHES)
    assert {fact.first_branch for fact in read_facts()} | {fact.last_branch for fact in read_facts()} <= set(known)


HEAP = """\
#define NVOS32_FUNCTION_ALLOC_DEPTH_WIDTH_HEIGHT        1
#define NVOS32_FUNCTION_ALLOC_SIZE                      2
#define NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR             27
#define NVOS32_FLAGS_BLOCKINFO_VISIBILITY_CPU           (0x00000001)
"""


def test_an_unknown_heap_function_in_the_headers_is_found() -> None:
    assert find_unread_functions(525, HEAP) == []
    assert find_unread_functions(530, HEAP) == ["NVOS32_FUNCTION_ALLOC_DEPTH_WIDTH_HEIGHT is in no row"]
    assert find_unread_functions(595, "#define\tNVOS32_FUNCTION_ALLOC_MORE 28\n") == [
        "NVOS32_FUNCTION_ALLOC_MORE is in no row"
    ]


@pytest.mark.parametrize("branch", [515, 580])
def test_a_wrong_field_offset_is_noticed(runner: Path, branch: int) -> None:
    """Each field of the layout in turn is off by four: the trace changes each time."""
    unnoticed = []
    for place, name in enumerate(FIELDS):
        traces = (
            CoreTrace(seed, CoreWire(branch), knows_cards=True, falsified=(place, 4)).run(400) for seed in range(8)
        )
        if not any(_is_noticed(trace.check, runner) for trace in traces):
            unnoticed.append(name)
    # The branch number is read once, at the start.
    assert unnoticed == [name for name in FIELDS if name == "branch" or not _has(branch, name)]


def test_a_core_built_of_a_wrong_table_fails(folder: Path) -> None:
    wrong = folder / "wrong"
    shutil.copytree(CORE, wrong)
    header = (wrong / "layouts.h").read_text()
    assert ".memory_size = 64" in header
    (wrong / "layouts.h").write_text(header.replace(".memory_size = 64", ".memory_size = 72"))
    runner = build_program(folder / "play-wrong", ["run_script.c"], [], wrong)
    with pytest.raises(NotSoError):
        CoreTrace(1, CoreWire(580), knows_cards=False).run(250).check(runner)


def _has(branch: int, name: str) -> bool:
    facts = [fact for fact in read_facts() if fact.name == name]
    # Up to 520 the flags are asked for all the same: at 0 there are none.
    return name == "alloc_long_flags" or any(fact.is_valid_in(branch) for fact in facts)


def _is_noticed(check: Callable[[Path], None], runner: Path) -> bool:
    try:
        check(runner)
    except NotSoError:
        return True
    return False
