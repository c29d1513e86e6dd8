"""Compiles every offset, size and number of layouts.csv against NVIDIA's published headers and compares.

A function of VID_HEAP_CONTROL that has no row is a difference too: the core refuses it until its row says what it does.

    python -m shim.core.header_check FOLDER ..                 checkouts of open-gpu-kernel-modules
    python -m shim.core.header_check --git REPOSITORY [TAG ..] a clone, bare or not; all its release tags unless some are named

The headers are facts to compare with and are not part of this repository. With --git and no tags it prints the
branches.csv that follows: one row for each branch all of whose tags agree.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from shim.core.layout_facts import DriverBranch, LayoutFact, read_facts

HEADER_FOLDERS = (
    "src/common/sdk/nvidia/inc",
    "src/common/inc",
    "src/nvidia/arch/nvalloc/unix/include",
    "kernel-open/common/inc",
)
CLASSES = (
    *("0000", "0001", "0040", "0080", "00b1", "00c2", "00da", "00de", "00e0", "00f3"),
    *("2080", "84a0", "90cd", "a06c"),
)
HEADERS = (
    *("stddef.h", "stdio.h", "nvtypes.h", "nvos.h", "nvstatus.h", "nvlimits.h"),
    *("nv-ioctl.h", "nv-ioctl-numbers.h", "nv_escape.h", "nv-unix-nvos-params-wrappers.h"),
    "alloc/alloc_channel.h",
    *("ctrl/ctrl0000/ctrl0000gpu.h", "ctrl/ctrl0000/ctrl0000unix.h", "ctrl/ctrl2080/ctrl2080fb.h"),
    *(f"ctrl/ctrl2080/ctrl2080{name}.h" for name in ("fifo", "gpu", "gr")),
    *(f"class/cl{number}.h" for number in CLASSES),
)
HEAP_FUNCTION = re.compile(r"^#define\s+(NVOS32_FUNCTION_\w+)\s", re.MULTILINE)
RELEASE = re.compile(r"(\d{3})\.\d+(\.\d+)?")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--git", type=Path, metavar="REPOSITORY")
    parser.add_argument("names", nargs="*", metavar="FOLDER or TAG")
    chosen = parser.parse_args()
    if not chosen.git:
        return 1 if sum(_report_differences(_read_version(Path(name)), Path(name)) for name in chosen.names) else 0
    good: dict[int, list[str]] = defaultdict(list)
    wrong = set()
    for tag in sorted(chosen.names or _list_release_tags(chosen.git), key=_sort_key):
        with TemporaryDirectory() as folder:
            _unpack_headers(chosen.git, tag, Path(folder))
            if _report_differences(tag, Path(folder)):
                wrong.add(_parse_branch(tag))
            else:
                good[_parse_branch(tag)].append(tag)
    _print_branches([DriverBranch(number, len(tags), tags[-1]) for number, tags in good.items() if number not in wrong])
    return 1 if wrong else 0


def find_differences(branch: int, folder: Path) -> list[str]:
    """Where a checkout differs; empty when it agrees in everything."""
    expected = [fact for fact in read_facts() if fact.is_valid_in(branch)]
    if not expected:
        return [f"branch {branch} is in no row"]
    return [
        f"{fact.name} is {found}, not {fact.value}"
        for fact, found in zip(expected, _compile_values(expected, folder), strict=True)
        if found != fact.value
    ] + find_unread_functions(branch, (folder / HEADER_FOLDERS[0] / "nvos.h").read_text())


def find_unread_functions(branch: int, header: str) -> list[str]:
    """The functions of VID_HEAP_CONTROL in that nvos.h that have no row in this branch: they might allocate memory."""
    known = {fact.expression for fact in read_facts() if fact.is_valid_in(branch)}
    return [f"{name} is in no row" for name in HEAP_FUNCTION.findall(header) if name not in known]


def _compile_values(wanted: list[LayoutFact], folder: Path) -> list[int]:
    # Not every branch has all of them.
    lines = [f'#if __has_include("{header}")\n#include "{header}"\n#endif' for header in HEADERS]
    lines.append("int main(void) {")
    lines += [f'printf("%llu\\n", (unsigned long long)({fact.expression}));' for fact in wanted]
    program = folder / "offsets"
    rooms = [f"-I{folder / room}" for room in HEADER_FOLDERS]
    command = ["gcc", "-std=gnu11", "-w", *rooms, "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input="\n".join([*lines, "}"]), text=True, check=True, timeout=100)
    output = subprocess.run([program], capture_output=True, text=True, check=True, timeout=10).stdout
    return [int(line) for line in output.split()]


def _report_differences(version: str, folder: Path) -> int:
    complaints = find_differences(_parse_branch(version), folder)
    for complaint in complaints:
        sys.stdout.write(f"{version}: {complaint}\n")
    sys.stderr.write(f"{version}: {'differs' if complaints else 'agrees'}\n")
    return len(complaints)


def _print_branches(branches: list[DriverBranch]) -> None:
    sys.stdout.write("branch,tags,newest\n")
    sys.stdout.writelines(f"{branch.number},{branch.tag_count},{branch.newest_tag}\n" for branch in branches)


def _list_release_tags(repository: Path) -> list[str]:
    return [tag for tag in _run_git(repository, "tag").decode().split() if RELEASE.fullmatch(tag)]


def _unpack_headers(repository: Path, tag: str, folder: Path) -> None:
    archive = _run_git(repository, "archive", tag, *HEADER_FOLDERS)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True, timeout=100)


def _run_git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, check=True, timeout=100
    ).stdout


def _read_version(folder: Path) -> str:
    found = re.search(r"NVIDIA_VERSION = (\S+)", (folder / "version.mk").read_text())
    if not found:
        raise SystemExit(f"{folder}/version.mk names no version")
    return found.group(1)


def _parse_branch(version: str) -> int:
    return int(version.partition(".")[0])


def _sort_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    sys.exit(main())
