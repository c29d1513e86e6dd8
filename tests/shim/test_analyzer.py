"""The clang static analyzer has nothing to say about any C of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.analyzer import run_analyzer

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "shim/core",
    "shim/preload",
    "shim/hook",
    "tests/shim/core",
    "tests/fakes/driver/server",
    "tests/fakes/driver/programs",
)
"""All C files of each; a folder's own headers and the core's are found."""
FREESTANDING = {"shim/preload"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_analyzer_reports_nothing(folder: str) -> None:
    sources = sorted(map(str, (ROOT / folder).glob("*.c")))
    assert sources
    command = ["-std=c11", "-Wall", "-Wextra"]
    command += ["-ffreestanding"] if folder in FREESTANDING else ["-D_GNU_SOURCE"]
    headers = [f"-I{ROOT / each}" for each in (folder, "shim/core", "tests/fakes/driver/server")]
    assert run_analyzer([*command, *headers, source] for source in sources) == []


def test_a_mistake_is_found_although_the_file_was_clean_before(tmp_path: Path) -> None:
    source = tmp_path / "mistake.c"
    source.write_text("int main(void) { return 0; }\n")
    assert run_analyzer([[str(source)]]) == []
    source.write_text("int main(void) { int *nothing = 0; return *nothing; }\n")
    (said,) = run_analyzer([[str(source)]])
    assert "Dereference of null pointer" in said
