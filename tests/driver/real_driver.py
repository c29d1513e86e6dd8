"""A machine with NVIDIA's driver in it: where its files are, how it is loaded, and how its answers are compared."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.driver.nvidia_build import build_nvidia_modules
from tests.driver.nvidia_packages import RELEASES
from tests.fakes.driver.build import build_fake_driver
from tests.machine.archive import Content
from tests.machine.kernels import prepare_kernel
from tests.machine.machine import VirtualMachine
from tests.machine.program import GuestStart
from tests.machine.python import LIBRARIES, libraries, python_files
from tests.shim.kmod.building import VRAMPACK, KmodSource, build_module
from tests.shim.kmod.world import BudgetPlace, KmodWorld
from tests.shim.preload.building import build_library
from tests.support.program_result import ProgramResult

BUILT = Path(__file__).parents[2] / "build"
FAKEPCI = KmodSource("fakepci", (Path(__file__).parent / "fakepci",))
FILES_VARIABLE = "VRAMPACK_NVIDIA_FILES"
"""A folder: BRANCH/ has what nvidia_packages.py fetched."""
WINDOW_BASE = 0x40000000
PARAMETERS = f"memmap=352M$0x{WINDOW_BASE:x}"
"""Memory that the kernel does not use: registers and windows of two functions, and a margin."""
MEMORY_MIB, OPENED_MEMORY_MIB = 1536, 2048
REAL = "real"
"""The folder of /lib with NVIDIA's modules."""
OPENED_BRANCH = "535"
"""The release whose GSP `fakepci` simulates."""
AGENT = "tests.shim.preload.real_agent"
SHIPPED_LIBRARY = "/lib/libvrampack.so"
HOPPER = ("device=0x2330", "boot0=0x180000a1", "boot42=0x180a1000", "poke=0x200bc,0xff", "gsp=1")
REGISTRY = "NVreg_RegistryDwords=RmDisableCotCmd=0x15;RMDisableScrubOnFree=1;RmRcWatchdog=0"
"""No chain of trust with the GSP; no channels that would have to scrub memory, or tell whether the card still computes."""
LIMIT_MIB = 4301
"""Of the founding scenario; the opened card has 81920."""
SMI, STRACE = "/bin/nvidia-smi", "/bin/strace"
TRACED = (STRACE, "-f", "-e", "trace=ioctl,openat")
SMI_MEMORY = re.compile(r"(\d+)MiB / +(\d+)MiB")
CHANGING = re.compile(r"c1d[0-9a-f]{5}|0x[0-9a-f]{6,}|\[pid +\d+\] |/task/\d+/|(?<=cpu)\d+|\b\d{2,6}(?=(?: |$))")
"""What differs between two runs of one program: handles, addresses, pids, times."""


@dataclass(frozen=True, slots=True)
class DriverOnKernel:
    """One release of the driver, in one kernel."""

    branch: str
    kernel: str

    def __str__(self) -> str:
        return f"{self.branch}-{self.kernel}"

    @property
    def version(self) -> str:
        return RELEASES[self.branch].version


CHOSEN = os.environ.get("VRAMPACK_DRIVERS", "535-5.10 535-6.1 550-6.1 550-6.12").split()
"""Each takes minutes to build the first time; a change is tested on fewer of them than a release."""
COMBINATIONS = tuple(DriverOnKernel(*each.split("-")) for each in CHOSEN)
OPENED = tuple(each for each in COMBINATIONS if each.branch == OPENED_BRANCH)


@dataclass(frozen=True, slots=True)
class RealDriver:
    machine: VirtualMachine
    which: DriverOnKernel

    @property
    def world(self) -> KmodWorld:
        return KmodWorld(self.machine)

    def load(self, *function: str, registry: str = "") -> None:
        """The function and the driver beside it."""
        self.machine.insmod("/lib/fakepci.ko", f"base=0x{WINDOW_BASE:x}", "gpus=1", *function)
        self.load_driver(registry)

    def load_driver(self, registry: str = "") -> None:
        self.world.load_driver(REAL, *([registry] if registry else []))
        self.world.load_uvm(REAL)

    def load_shim(self) -> None:
        if "vrampack" not in self.world.loaded():
            self.world.load_shim()

    def unload_shim(self) -> None:
        if "vrampack" in self.world.loaded():
            self.world.forget()
            self.world.command("detach")
            self.world.unload_shim()

    def unload(self) -> None:
        """Unloads what is loaded, in order."""
        self.unload_shim()
        for name in [each for each in ("nvidia_uvm", "nvidia", "fakepci") if each in self.world.loaded()]:
            self.machine.rmmod(name)

    def run_calls(self, start: GuestStart) -> str:
        """Every answer of the driver to `programs/calls.c`."""
        nodes = ["/dev/nvidia0", *(["+/dev/nvidia0"] if self.which.branch >= "545" else [])]
        ended = self.machine.run("calls", self.which.version, *nodes, start=start, timeout=200)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    def trace_calls(self, program: str, start: GuestStart) -> ProgramResult:
        """What the program says, and on stderr its calls of the driver."""
        return self.machine.run(*TRACED, program, start=start, timeout=200)


def read_smi(place: BudgetPlace) -> tuple[int, int]:
    """MiB used and in all, of the one card in nvidia-smi's table."""
    ((used, total),) = SMI_MEMORY.findall(place.run(SMI).out)
    return int(used), int(total)


def read_differences(before: str, after: str) -> list[str]:
    """Lines in which the two differ, without what changes from run to run."""
    lines_before, lines_after = ([CHANGING.sub("#", line) for line in text.splitlines()] for text in (before, after))
    differences = difflib.unified_diff(lines_before, lines_after, lineterm="", n=0)
    return [line for line in differences if not line.startswith(("---", "+++", "@@"))]


def opened_files(which: DriverOnKernel, folder: Path) -> dict[str, Content]:
    """What an opened card needs besides: firmware, and for the library an agent and a program linked to libc."""
    program = build_fake_driver(BUILT).app
    files = machine_files(which) | _firmware(which) | python_files([AGENT]) | libraries(program)
    return files | {"/bin/app-linked": program, SHIPPED_LIBRARY: build_library(folder)}


def machine_files(which: DriverOnKernel) -> dict[str, Content]:
    """By where they are in a machine."""
    kernel = prepare_kernel(which.kernel)
    modules = build_nvidia_modules(which.branch, kernel)
    files: dict[str, Content] = {f"/lib/{REAL}/{each.name}": each for each in modules.glob("*.ko")}
    files |= {f"/lib/{each.name}.ko": build_module(BUILT, kernel, each) for each in (FAKEPCI, VRAMPACK)}
    return files | _user_space(which)


def boot_machine(
    which: DriverOnKernel, programs: Sequence[Path], files: dict[str, Content], *, is_opened: bool = False
) -> VirtualMachine:
    """Where probes come and go while other programs run, processors take turns; races need both."""
    return VirtualMachine(
        prepare_kernel(which.kernel),
        programs=programs,
        files=files,
        memory_mib=OPENED_MEMORY_MIB if is_opened else MEMORY_MIB,
        is_parallel=is_opened,
        parameters=PARAMETERS,
    )


def _fetched(which: DriverOnKernel) -> Path:
    return Path(os.environ[FILES_VARIABLE]) / which.branch


def _user_space(which: DriverOnKernel) -> dict[str, Content]:
    """NVIDIA's libraries under the names that programs load, nvidia-smi, strace, and what those need."""
    folder = _fetched(which) / "usr/lib/x86_64-linux-gnu/nvidia/current"
    found = {each.name: each for each in folder.iterdir() if not each.is_symlink() and ".so." in each.name}
    files: dict[str, Content] = {f"{LIBRARIES}/{name}": path for name, path in found.items()}
    for short in ("libcuda.so", "libnvidia-ml.so"):
        files[f"{LIBRARIES}/{short}.1"] = found[f"{short}.{which.version}"]
    tools = {SMI: next((_fetched(which) / "usr/lib/nvidia").rglob("nvidia-smi")), STRACE: Path("/usr/bin/strace")}
    for program in (*found.values(), *tools.values()):
        files |= libraries(program)
    return files | tools


def _firmware(which: DriverOnKernel) -> dict[str, Content]:
    folder = _fetched(which) / "lib/firmware/nvidia" / which.version
    return {f"/lib/firmware/nvidia/{which.version}/{each.name}": each for each in folder.iterdir()}
