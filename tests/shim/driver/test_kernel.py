"""The driver as kernel modules: they register devices, and check the files of their callers, as the published ones do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.driver.build import build_static
from tests.fakes.driver.driver import MIB, FakeDriverState, parse_state
from tests.fakes.driver.modules import ONE_DEVICE_VERSION, VERSION, FakeDriverModules, build_modules
from tests.machine.archive import Content
from tests.machine.kernels import prepare_kernel
from tests.machine.machine import VirtualMachine
from tests.machine.program import GuestStart

pytestmark = pytest.mark.timeout(200)

BUILT = Path(__file__).parents[3] / "build"
VERSIONS = (VERSION, ONE_DEVICE_VERSION)
CONTROL, CARDS = 255, 2
PARAMETERS = ("cards=GPU-11111111-2222-3333-4444-555555555555:16130:1,GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:1024:0",)
SYMBOLS = {
    VERSION: (
        {"nvidia_open", "nvidia_unlocked_ioctl", "uvm_va_range_create_mmap"},
        {"nvidia_frontend_open", "nvidia_ioctl"},
    ),
    ONE_DEVICE_VERSION: (
        {"nvidia_open", "nvidia_ioctl", "nvidia_frontend_unlocked_ioctl", "nvidia_frontend_compat_ioctl"},
        {"nvidia_unlocked_ioctl"},
    ),
}
DEVICES = {VERSION: {"195 nvidia", "195 nvidiactl"}, ONE_DEVICE_VERSION: {"195 nvidia-frontend"}}


@dataclass(frozen=True, slots=True)
class GuestDriver:
    """A loaded driver of some version."""

    machine: VirtualMachine
    version: str

    @property
    def state(self) -> FakeDriverState:
        return parse_state(self.machine.read("/proc/driver/nvidia/fake"))

    @property
    def used_mib(self) -> list[int]:
        return [card.used // MIB for card in self.state.cards]

    @property
    def start(self) -> GuestStart:
        return GuestStart(env={"RM_BRANCH": self.version.partition(".")[0]})

    def run_program(self, program: str, *words: str) -> list[str]:
        ended = self.machine.run(program, *words, start=self.start)
        assert (ended.code, ended.err) == (0, "")
        return ended.lines


@pytest.fixture(scope="module")
def built() -> dict[str, FakeDriverModules]:
    return {version: build_modules(BUILT, prepare_kernel("6.1").build, version) for version in VERSIONS}


@pytest.fixture(scope="module")
def machine(built: dict[str, FakeDriverModules]) -> Iterator[VirtualMachine]:
    """With both versions of the driver in it, and nothing loaded."""
    files: dict[str, Content] = {}
    for version, modules in built.items():
        files |= {f"/lib/{version}/{path.name}": path for path in (modules.nvidia, modules.uvm)}
    with VirtualMachine(prepare_kernel("6.1"), programs=build_static(BUILT).iterdir(), files=files) as booted:
        yield booted
        booted.assert_quiet()


@pytest.fixture(params=VERSIONS, ids=["two devices", "one device"])
def driver(machine: VirtualMachine, request: pytest.FixtureRequest) -> Iterator[GuestDriver]:
    machine.insmod(f"/lib/{request.param}/nvidia.ko", *PARAMETERS)
    machine.insmod(f"/lib/{request.param}/nvidia-uvm.ko")
    uvm = next(line.split()[0] for line in machine.read("/proc/devices").splitlines() if line.endswith(" nvidia-uvm"))
    nodes = {"nvidiactl": (195, CONTROL), "nvidia-uvm": (int(uvm), 0)}
    nodes |= {f"nvidia{minor}": (195, minor) for minor in range(CARDS)}
    for name, (major, minor) in nodes.items():
        machine.mknod(f"/dev/{name}", major, minor)
    yield GuestDriver(machine, request.param)
    for name in nodes:
        machine.call("unlink", f"/dev/{name}")
    machine.rmmod("nvidia_uvm")
    machine.rmmod("nvidia")


def test_the_driver_is_registered_as_its_version_requires(driver: GuestDriver) -> None:
    """D24, D26: devices, and the version in both places."""
    read = driver.machine.read
    devices = {" ".join(line.split()) for line in read("/proc/devices").splitlines()}
    assert {device for device in devices if device.startswith("195 ")} == DEVICES[driver.version]
    assert read("/sys/module/nvidia/version").strip() == driver.version
    assert f"Module  {driver.version}  " in read("/proc/driver/nvidia/version")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_driver_has_the_functions_of_its_version(built: dict[str, FakeDriverModules], version: str) -> None:
    """D24, D25: other modules find them by these names."""
    command = ["nm", str(built[version].nvidia), str(built[version].uvm)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    functions = {words[2] for words in map(str.split, listed.splitlines()) if len(words) == 3 and words[1] in "tT"}
    there, absent = SYMBOLS[version]
    assert (there - functions, absent & functions) == (set(), set())


def test_programs_see_both_cards_and_the_accounts_match_the_server(driver: GuestDriver) -> None:
    first, second = (card.uuid for card in driver.state.cards)
    with driver.machine.running("app", "--minor", "1", "--hold", "3193", start=driver.start) as app:
        app.wait_for_line("holding")
        assert driver.run_program("app", "--minor", "0", "768", "--then", "1") == [
            "allocated 768 MiB",
            "error 2: cudaErrorMemoryAllocation",
        ]
        assert driver.state.card(first).by_process == {app.pid: 3193 * MIB}
        assert driver.state.card(second).peak == 768 * MIB
        assert driver.machine.read("/proc/driver/nvidia/files") == f"nvidiactl {app.pid} own\nnvidia1 {app.pid} own\n"
        with pytest.raises(OSError, match="temporarily unavailable"):
            driver.machine.rmmod("nvidia")
    assert app.wait_for_end().code != 0
    assert (driver.used_mib, driver.state.files) == ([0, 0], 0)


def test_a_device_needs_its_card_file_open(driver: GuestDriver) -> None:
    """D22, whose other half, a card's file with another table, the module's own tests would show."""
    assert driver.run_program("steps", "open", "device", "shut", "device") == [
        "device: status 0x0",
        "device: status 0x1b",
    ]


def test_a_cards_file_keeps_the_control_file_open(driver: GuestDriver) -> None:
    """D23."""
    with driver.machine.running(
        "steps", "open", "take", "100", "drop", "wait", "shut", "wait", start=driver.start
    ) as steps:
        steps.wait_for_line("waiting")
        assert sum(driver.used_mib) == 100
        steps.resume()
        steps.wait_for_line("waiting")
        assert sum(driver.used_mib) == 0


def test_unified_memory_uses_its_own_files_and_mappings(driver: GuestDriver) -> None:
    """D15 and D25."""
    assert driver.run_program("steps", "open", "uvm") == ["uvm: status 0x0"]
    assert driver.run_program("app", "--managed", "64") == ["allocated 64 MiB managed"]


def test_host_memory_and_windows_take_no_card_memory(driver: GuestDriver) -> None:
    """D16."""
    said = ["class 0x40: status 0x0", "class 0xc2: status 0x22", "class 0x3e: status 0x0"]
    assert driver.run_program("steps", "open", "host", "40", "host", "c2", "host", "3e") == said
    assert sum(driver.used_mib) == 0


def test_the_driver_can_be_set_to_refuse_and_to_reset_its_peak(driver: GuestDriver) -> None:
    driver.machine.write("/proc/driver/nvidia/fake", "51 1\n")
    assert driver.run_program("steps", "open", "take", "5", "take", "5") == [
        "error 2: cudaErrorMemoryAllocation",
        "allocated 5 MiB",
    ]
    driver.machine.write("/proc/driver/nvidia/fake", "peak\n")
    assert [card.peak for card in driver.state.cards] == [0, 0]


def test_races_and_invalid_calls_leave_nothing_behind(driver: GuestDriver) -> None:
    """Processes that end in all ways, and invalid calls: the accounts are even at the end."""
    [line] = driver.run_program("race", "--workers", "4", "--cycles", "1000", "--most", "16000", "--minor", "1")
    assert line.endswith(" 0 failed")
    ended = driver.machine.run("malformed", "5000", "1", start=driver.start, stdin="\n" * 10)
    assert (ended.code, ended.err) == (0, "")
    state = driver.state
    assert (state.files, state.clients, state.objects, driver.used_mib) == (0, 0, 0, [0, 0])
    assert 0 < state.cards[0].peak <= state.cards[0].total - 256 * MIB
