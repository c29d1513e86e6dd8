"""The preloaded library of arm64: programs of that machine start with it, and its system calls are those of arm64."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
AARCH64 = 183
pytestmark = pytest.mark.shim


def build(tmp_path: Path, source: str, *options: str) -> Path:
    program = tmp_path / Path(source).stem
    parts = REPOSITORY / "shim/preload"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{parts}", *options]
    subprocess.run([*command, "-o", str(program), str(PROGRAMS / source)], check=True, timeout=60)
    return program


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preload")
    command = ["make", "--silent", "-C", str(REPOSITORY / "shim/preload"), "preload", f"OUT={folder}"]
    subprocess.run(command, check=True, timeout=100)
    return folder / "libvrampack.so"


def test_the_library_is_built_for_arm64_and_needs_no_other(library: Path) -> None:
    content = library.read_bytes()
    assert int.from_bytes(content[18:20], "little") == AARCH64
    needed = subprocess.run(["aarch64-linux-gnu-readelf", "-d", library], check=True, capture_output=True, text=True)
    assert "(NEEDED)" not in needed.stdout


def test_a_program_starts_with_the_library(library: Path, tmp_path: Path) -> None:
    """Its ioctl, close and mmap go through the library, and work as without it."""
    program = build(tmp_path, "calls.c")
    command = ["qemu-aarch64-static", "-E", f"LD_PRELOAD={library}", str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ioctl close mmap fork\n", "")


def test_the_library_uses_arm64_system_calls(tmp_path: Path) -> None:
    """Against libc's own answers: a number or a flag of another machine would differ."""
    program = build(tmp_path, "system_calls.c")
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "folder stat time memory\n", "")
