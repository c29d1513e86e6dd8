"""One program, shaped for each branch, finds a driver of that branch; one wrong number on either side is detected."""

from __future__ import annotations

import subprocess
from ctypes import addressof
from pathlib import Path

import pytest

from tests.fakes.driver.build import FakeDriverPrograms, altered_sources, build_server
from tests.fakes.driver.driver import MIB, FakeCard, FakeDriver
from tests.shim.driver import parameters as nv
from tests.shim.driver.caller import DriverCaller, call_ioctl, ioctl_number

VERSIONS = (
    "515.43.04", "520.61.05", "525.60.13", "530.41.03", "535.54.03", "545.29.06", "550.54.14", "555.58", "560.35.03", "565.57.01",
    "570.86.15", "575.57.08", "580.65.06", "590.48.01", "595.45.04",
)  # fmt: skip
FORMS = {
    "long": (),
    "short": ("--short",),
    "heap": ("--heap",),
    "wrapped": ("--xfer",),
    "raw": ("--raw",),
}


def run(program: Path, driver: FakeDriver, *words: str) -> str:
    command = [str(program), "--control", str(driver.control), "--driver", str(driver.branch), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout


@pytest.mark.parametrize("driver", VERSIONS, indirect=True)
def test_every_form_of_the_call_works_on_every_branch(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    for form, words in FORMS.items():
        said = run(programs.app, driver, "--minor", "1", "--total", "--free", *words, "3193", "--then", "20000")
        assert said == (
            "allocated 3193 MiB\n"
            "error 2: cudaErrorMemoryAllocation\n"
            "Total amount of global memory: 16130 MBytes (16913530880 bytes)\n"
            "free 12681 MiB of 16130 MiB\n"  # 16130 - 256 - 3193
        ), form
    card = driver.state().cards[0]
    assert (card.used, card.peak) == (0, 3193 * MIB)


@pytest.mark.parametrize("driver", VERSIONS, indirect=True)
def test_surfaces_are_supported_up_to_branch_525(driver: FakeDriver, programs: FakeDriverPrograms) -> None:
    """Less than 4 GiB each: the function counts in 32 bits."""
    said = run(programs.app, driver, "--minor", "1", "--surface", "--free", "3193")
    if driver.branch <= 525:
        assert said == "allocated 3193 MiB\nfree 12681 MiB of 16130 MiB\n"
    else:
        assert said == "error 999: cudaErrorUnknown (status 0x1f)\nfree 15874 MiB of 16130 MiB\n"


# Branch -> sizes at which its RM_ALLOC comes back, and FB_GET_INFO_V2 (headers' facts, not the server's table)
ALLOC_SIZES = {"515.43.04": {32, 40}, "525.60.13": {32, 40}, "535.54.03": {32, 48}, "595.45.04": {32, 48}}


@pytest.mark.parametrize(("driver", "sizes"), ALLOC_SIZES.items(), indirect=["driver"])
def test_a_branch_accepts_only_its_own_sizes(driver: FakeDriver, sizes: set[int]) -> None:
    with driver.control.open("r+b", buffering=0) as control:
        room = (nv.Alloc * 2)()
        taken = {
            size
            for size in range(64)
            if call_ioctl(control.fileno(), ioctl_number(nv.ALLOC, size), addressof(room)) == 0
        }
        assert taken == sizes


@pytest.mark.parametrize("version", ["470.256.02", "600.10", "615.71.09", "none"])
def test_an_unknown_branch_is_not_simulated(programs: FakeDriverPrograms, tmp_path: Path, version: str) -> None:
    command = [str(programs.server), str(tmp_path), version, "GPU-11111111-2222-3333-4444-555555555555:1024:0"]
    done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    assert done.returncode == 2


ALTERED = {
    "size of an allocation": ("layout.h", "MEMORY_BYTES = 64", "MEMORY_BYTES = 72", ()),
    "its attributes": ("layout.h", "MEMORY_ATTR = 24", "MEMORY_ATTR = 64", ()),
    "status of the long form": ("layout.h", "X(580, 28, 48, 40,", "X(580, 28, 48, 44,", ()),
    "status of the short form": ("layout.h", "X(580, 28,", "X(580, 24,", ("--short",)),
    "size of the long form": ("layout.h", "X(580, 28, 48,", "X(580, 28, 40,", ()),
    "entries of a report": ("layout.h", "40, 128, 128, 9264, 24, 2608, 36) \\\n\tX(590", "40, 128, 57, 9264, 24, 2608, 36) \\\n\tX(590", ()),
    "the handle that is made": ("layout.h", "ALLOC_NEW = 8", "ALLOC_NEW = 4", ()),
    "size in the heap call": ("layout.h", "X(2, 56, 144, 88,", "X(2, 56, 144, 80,", ("--heap",)),
    "the minor of a card": ("layout.h", "CARD_MINOR = 56", "CARD_MINOR = 60", ()),
    "the instance of a card": ("layout.h", "ID_INFO_INSTANCE = 8", "ID_INFO_INSTANCE = 12", ()),
    "the status of a free": ("layout.h", "FREE_STATUS = 12", "FREE_STATUS = 8", ()),
}  # fmt: skip


# 3 MiB in big pages stay 3 MiB, 2048 - 256 - 3 are left, and 2000 are too many
GOOD_WORDS = (
    "allocated 3 MiB\n"
    "duplicated, and the first handle freed\n"
    "error 2: cudaErrorMemoryAllocation\n"
    "Total amount of global memory: 2048 MBytes (2147483648 bytes)\n"
    "free 1789 MiB of 2048 MiB\n"
)
GOOD = (GOOD_WORDS, [0, 3 * MIB], nv.BAD_CLIENT)


def behaviour(program: Path, server: Path, folder: Path, words: tuple[str, ...]) -> tuple[str, list[int], int | None]:
    """What a program gets from that driver: its output, the peaks of two cards, the status of a free by no client."""
    cards = (FakeCard(minor=1), FakeCard("GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 2048, 0))
    with FakeDriver(server, folder, cards=cards) as driver:
        said = run(program, driver, "--minor", "0", "--total", "--free", "--dup", *words, "3", "--then", "2000")
        peaks = [card.peak for card in driver.state().cards]
        try:
            with DriverCaller(driver.control) as caller:
                caller.client, own = 99, caller.client
                return said, peaks, caller.free_object(own)
        except (OSError, ValueError):
            return said, peaks, None


@pytest.mark.parametrize(("file", "right", "wrong", "words"), ALTERED.values(), ids=ALTERED)
def test_a_driver_with_a_wrong_number_is_detected(
    programs: FakeDriverPrograms, tmp_path: Path, file: str, right: str, wrong: str, words: tuple[str, ...]
) -> None:
    """The driver with that one number changed no longer gives the program what it should."""
    server = tmp_path / "server"
    build_server(server, sources=altered_sources(tmp_path / "sources", {file: (right, wrong)}))
    assert behaviour(programs.app, server, tmp_path / "dev", words) != GOOD


@pytest.mark.parametrize("words", [(), ("--short",), ("--heap",)])
def test_the_driver_with_the_right_numbers_behaves_as_expected(
    programs: FakeDriverPrograms, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert behaviour(programs.app, programs.server, tmp_path / "dev", words) == GOOD
