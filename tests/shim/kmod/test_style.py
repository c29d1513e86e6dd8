"""The module's sources pass the kernel's own tools, and one version is used everywhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.driver.modules import OPTIONS
from tests.machine import kernels
from tests.machine.kernels import Kernel
from tests.shim.analyzer import run_analyzer
from tests.shim.file_calls import find_circle

ROOT = Path(__file__).parents[3]
SOURCE_FOLDERS = ("core", "kmod")
TIMEOUT_SECONDS = 110
LINE = 120
IGNORED = {
    # Ours are copies of the driver's tables, with a few names changed.
    "CONST_STRUCT": {"kmod"},
    # NOKPROBE_SYMBOL stands below its function as EXPORT_SYMBOL does; this version knows only the latter.
    "LINE_SPACING": {"kmod"},
    # The core is compiled without the kernel's headers too, and has its licence from the repository.
    "PREFER_KERNEL_TYPES": {"core"},
    "SPDX_LICENSE_TAG": {"core"},
}
"""Of checkpatch's, and in which folders. Longer lines and macros of the core's generated table and older files are not looked at."""
CORE_ONLY = (
    "LONG_LINE",
    "LONG_LINE_COMMENT",
    "COMPLEX_MACRO",
    "MACRO_ARG_REUSE",
    "CAMELCASE",
    "BIT_MACRO",
    "COMPARISON_TO_NULL",
)


@pytest.fixture(scope="module")
def stock() -> Kernel:
    return kernels.prepare_kernel("6.1")


@pytest.fixture(scope="module")
def checked(stock: Kernel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a build in which sparse has read every file, and the output of make and sparse without progress."""
    folder = tmp_path_factory.mktemp("style")
    for source_folder in SOURCE_FOLDERS:
        shutil.copytree(
            ROOT / "shim" / source_folder, folder / source_folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    command = ["make", "-s", "-C", str(stock.build), f"M={folder / 'kmod'}", "C=2", "CHECK=sparse", *OPTIONS, "modules"]
    done = _run(command)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def test_sparse_reports_nothing(checked: tuple[Path, str]) -> None:
    """Callers' addresses are never taken for the kernel's, and locks are balanced."""
    assert checked[1] == ""


def test_no_calls_form_a_circle(checked: tuple[Path, str]) -> None:
    parts = [(checked[0] / "kmod" / source.name).with_suffix(".o") for source in (ROOT / "shim" / "kmod").glob("*.c")]
    assert find_circle(parts) == set()


def test_sparse_finds_a_planted_fault(stock: Kernel, tmp_path: Path) -> None:
    """So its silence means something: it finds a caller's address that is read as the kernel's."""
    (tmp_path / "Kbuild").write_text("obj-m := broken.o\n")
    (tmp_path / "broken.c").write_text(
        "#include <linux/module.h>\n"
        "static int read(const int __user *from) { return *from; }\n"
        "int init_module(void) { return read(NULL); }\n"
        'MODULE_LICENSE("GPL");\nMODULE_DESCRIPTION("broken");\n'
    )
    done = _run(["make", "-s", "-C", str(stock.build), f"M={tmp_path}", "C=2", "CHECK=sparse", "modules"])
    assert "dereference of noderef expression" in done.stderr


@pytest.mark.parametrize("source_folder", SOURCE_FOLDERS)
def test_checkpatch_reports_nothing(source_folder: str, tmp_path: Path) -> None:
    script = kernels.prepare_kernel("6.1-debug").build / "scripts" / "checkpatch.pl"
    ignored = [kind for kind, folders in IGNORED.items() if source_folder in folders] + (
        list(CORE_ONLY) if source_folder == "core" else []
    )
    options = ["--no-tree", f"--root={tmp_path}", "--strict", f"--max-line-length={LINE}", "--terse", "--show-types"]
    sources = sorted(map(str, (ROOT / "shim" / source_folder).glob("*.[ch]")))
    # It leaves a file in its working folder, and looks there for headers whose names have capitals.
    (tmp_path / "include").mkdir()
    done = _run(["perl", str(script), *options, "--ignore", ",".join(ignored), "--file", *sources], cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if not line.startswith("total:")]
    assert (found, done.stderr) == ([], "")


def test_the_analyzer_reports_nothing(checked: tuple[Path, str], stock: Kernel) -> None:
    """With the kernel's headers, and without dead stores: it finds them in the headers, and gcc looks for ours."""
    folder, _ = checked
    command = ["-w", "-O2", "-Xanalyzer", "-analyzer-disable-checker", "-Xanalyzer", "deadcode.DeadStores"]
    sources = [source for source_folder in SOURCE_FOLDERS for source in sorted((folder / source_folder).glob("*.c"))]
    commands = [
        [*command, *_options((source.parent / f".{source.stem}.o.cmd").read_text()), str(source)]
        for source in sources
        if not source.name.endswith(".mod.c")
    ]
    assert commands
    assert run_analyzer(commands, cwd=stock.build, copy=folder) == []


@pytest.mark.parametrize("header", sorted((ROOT / "shim" / "kmod").glob("*.h")), ids=lambda header: header.name)
def test_every_shared_function_has_a_comment(header: Path) -> None:
    """A comment precedes each declaration, with nothing but other declarations between."""
    comment = False
    for line in header.read_text().splitlines():
        if line.endswith("*/"):
            comment = True
        elif not line or not line.rstrip().endswith(("(", ",", ");")):
            comment = False
        elif line[0].isalpha():
            assert comment, line


def test_the_same_version_is_used_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    folder = ROOT / "shim" / "kmod"
    assert f"VRAMPACK_VERSION='\"{version}\"'" in (folder / "Kbuild").read_text()
    assert f'PACKAGE_VERSION="{version}"' in (folder / "dkms.conf").read_text()


def test_the_dkms_source_tree_is_complete(stock: Kernel, tmp_path: Path) -> None:
    """The tree for /usr/src builds where it lies, by the command of dkms.conf."""
    assert _run(["make", "-s", "-C", str(ROOT / "shim" / "kmod"), "tree", f"INTO={tmp_path}"]).returncode == 0
    (tree,) = tmp_path.iterdir()
    settings = (tree / "dkms.conf").read_text()
    command = re.search(r'^MAKE\[0\]="(.*)"$', settings, re.MULTILINE)
    assert command
    where = "${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build"
    words = command[1].replace("${kernel_source_dir}", str(stock.build)).replace(where, str(tree))
    done = _run([*shlex.split(words), "-s"])
    assert done.returncode == 0, done.stderr
    assert (tree / "kmod" / "vrampack.ko").exists()


def _options(command: str) -> list[str]:
    """Of what kbuild ran for one object: where headers are, and what is defined."""
    words = iter(shlex.split(command.splitlines()[0].split(":=", 1)[1]))
    found: list[str] = []
    for word in words:
        if word == "-include":
            found += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=", "-fshort-wchar", "-mcmodel=", "-m64")):
            found.append(word)
    return found


def _run(command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, cwd=cwd or ROOT
    )
