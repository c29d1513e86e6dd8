"""What explain prints: of pods that fit nowhere, of those that wait although they would fit, and of all others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.explain.fitting_texts import FITTING
from tests.cli.explain.hindered_texts import HINDERED
from tests.cli.explain.objects import (
    Object,
    a_bound_pod,
    a_gpu_node,
    a_waiting_pod,
    run_explain,
)
from tests.cli.explain.refused_texts import REFUSED
from tests.cli.explain.scenes import LIMITS, S1, TWO

BY_THEMSELVES: dict[str, tuple[tuple[Object, ...], str]] = {
    "bound": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, annotations=LIMITS)),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0

CONTAINER  LIMIT(MiB)
init             2150
main             4301
""",
    ),
    "bound with a limit that is no number": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, annotations={"limit-mib.vrampack.dev/main": "4301Mi"})),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "bound to two cards": (
        (*TWO, a_bound_pod("w", "gpu-2", {0: 2, 1: 2})),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 2 cards of gpu-2.

NODE   CARD  UNITS  UUID
gpu-2     0      2  GPU-0
gpu-2     1      2  GPU-1
""",
    ),
    "bound by another plugin": (
        (
            a_gpu_node("gpu-1"),
            a_bound_pod("w", "gpu-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "4"}),
        ),
        """\
Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "bound without a record": (
        (*S1, a_bound_pod("w", "gpu-1")),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: it has no record and counts on every card of its node; delete it, or let the node's agent observe it.
""",
    ),
    "bound with a damaged record": (
        (*S1, a_bound_pod("w", "gpu-1", annotations={"vrampack.dev/allocation": "{"})),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: annotation "vrampack.dev/allocation": not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); the pod counts on every card of its node.
""",
    ),
    "bound to a card that is gone": (
        (*S1, a_bound_pod("w", "gpu-1", {3: 4})),
        """\
Pod default/w is bound to gpu-1.

Its cards are not known: its record names a card the node does not have; the pod counts on every card of its node.
""",
    ),
    "bound to a node that is gone": (
        (*S1, a_bound_pod("w", "gone", {0: 4})),
        """\
Pod default/w is bound to gone.

Its cards are not known: its node no longer exists.
""",
    ),
    "bound and being deleted": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, deletionTimestamp="2026-01-01T00:00:00Z")),
        """\
Pod default/w is being deleted and, until it is gone, holds 4 units (4 GiB) on 1 card of gpu-1.

NODE   CARD  UNITS  UUID
gpu-1     0      4  GPU-0
""",
    ),
    "pending and being deleted": (
        (*S1, a_waiting_pod(deletionTimestamp="2026-01-01T00:00:00Z")),
        """\
Pod default/w is being deleted and was never bound: it will not be placed.
""",
    ),
    "finished": (
        (*S1, a_bound_pod("w", "gpu-1", {0: 4}, status={"phase": "Succeeded"})),
        """\
Pod default/w has finished (Succeeded) and holds nothing.
""",
    ),
    "asks nothing of ours": (
        (*S1, a_waiting_pod(units=0, said="0/1 nodes are available: 1 Insufficient cpu.")),
        """\
Pod default/w requests no aliyun.com/gpu-mem: the extender does not decide where it goes.

Scheduler vrampack says: 0/1 nodes are available: 1 Insufficient cpu.
""",
    ),
}
"""Pods that wait for no card: bound, gated, deleted, finished, not ours."""

TEXTS = REFUSED | HINDERED | FITTING | BY_THEMSELVES


@pytest.mark.parametrize(("cluster", "text"), TEXTS.values(), ids=TEXTS)
async def test_the_state_of_a_pod_is_explained_with_the_next_step(
    cluster: tuple[Object, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run_explain(tmp_path, cluster) == 0
    assert capsys.readouterr().out == text


def test_every_text_about_a_card_is_documented() -> None:
    """Each cell of the column WHY above; what names a model or a number is compared without it."""
    page = (Path(__file__).parents[3] / "docs/explain.md").read_text()
    tables = [
        line
        for _, text in (REFUSED | HINDERED).values()
        for line in text.splitlines()
        if re.match(r"\S+ +\d+ +\d+/\d+ ", line)
    ]
    said = {word for line in tables for word in re.split(r" {2,}", line)[-1].split("; ")}
    assert len(said) > 5
    table = page.partition("| `WHY` | means |")[2].partition("\n\n")[0]
    starts = tuple(
        re.split(r" [NM]\b", text)[0]
        for row in table.splitlines()
        for text in re.findall("`([^`]+)`", row.rpartition(" | ")[0])
    )
    assert [word for word in said if not word.startswith(starts)] == []


def test_case_names_are_unique() -> None:
    assert len(TEXTS) == len(REFUSED) + len(HINDERED) + len(FITTING) + len(BY_THEMSELVES)
