"""What can be tested of the GPU suite without a GPU: it says that there is none, and it covers what the document lists."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.gpu.points import BY_HAND, POINTS
from tests.support.processes import REPOSITORY

ROW = re.compile(r"\bD\d+\b")


def test_the_gpu_suite_reports_that_it_needs_a_card() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu"],
        cwd=REPOSITORY,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs an NVIDIA card" in done.stderr


def test_every_row_of_the_document_is_tried_or_listed_as_manual() -> None:
    text = (REPOSITORY / "docs/gpu-verification.md").read_text()
    rows = set(re.findall(r"^\| (D\d+) \|", text, re.MULTILINE))
    tried = {row for name in POINTS for row in ROW.findall(name)}
    assert tried | set(BY_HAND) == rows
    assert not tried & set(BY_HAND)
    assert f"{', '.join(BY_HAND[:-1])} and {BY_HAND[-1]}" in text, "the document says which it tries not"
