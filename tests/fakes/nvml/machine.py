"""Sets what the stub answers, and changes it while programs run: `python -m tests.fakes.nvml.machine STATE PROFILE`."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.fakes.nvml.build import LIBRARY
from tests.fakes.nvml.profiles import PROFILES, StubGpu

DRIVER = "615.71.09"
OLD_DRIVER = "580.95.05"
NO_INSTANCE = 0xFFFFFFFF

NOT_SUPPORTED = 3
GPU_IS_LOST = 15
DRIVER_NOT_LOADED = 9
UNKNOWN = 999


@dataclass(frozen=True, slots=True)
class _Fault:
    function: str
    uuid: str
    kind: Literal["error", "hang"]
    code: int = 0


@dataclass(frozen=True, slots=True)
class FakeCondition:
    """What a card reports about its health; -1: the call is not supported."""

    recovery_action: int = -1
    remap_pending: int = -1
    remap_failed: int = -1
    retirement_pending: int = -1
    uncorrected: int = -1


class FakeNvmlMachine:
    """One state file. Every method rewrites all of it; the stub reads it at its next call."""

    def __init__(self, state: Path, *, gpus: tuple[StubGpu, ...] = (), driver: str = DRIVER) -> None:
        self.state = state
        self._gpus = gpus
        self._driver = driver
        self._is_confidential = False
        self._processes: list[tuple[str, int, int]] = []
        self._faults: list[_Fault] = []
        self._xids: list[str] = []
        self._conditions: dict[str, FakeCondition] = {}
        self._samples: list[str] = []
        state.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    @property
    def gpus(self) -> tuple[StubGpu, ...]:
        return self._gpus

    def environment(self, library: Path) -> Mapping[str, str]:
        """What a program needs to find the stub, which lies in the folder `library`, and this machine."""
        return {"LD_LIBRARY_PATH": str(library), "VRAMPACK_NVML_STATE": str(self.state)}

    def set_gpus(self, gpus: tuple[StubGpu, ...]) -> None:
        """Replace the cards, as when one vanished, appeared or was partitioned again."""
        self._gpus = gpus
        self._write()

    def set_driver(self, version: str) -> None:
        self._driver = version
        self._write()

    def turn_on_confidential_computing(self) -> None:
        self._is_confidential = True
        self._write()

    def add_process(self, uuid: str, pid: int, mib: int) -> None:
        """A process that holds memory of that card or instance."""
        self._processes.append((uuid, pid, mib * 1024 * 1024))
        self._write()

    def add_sample(self, uuid: str, pid: int, *, timestamp: int, sm_percent: int) -> None:
        """What the driver sampled of that process; percent and pid may be invalid, as seen on real drivers."""
        self._samples.append(f"sample {uuid} {pid} {timestamp} {sm_percent}")
        self._write()

    def clear_processes(self) -> None:
        self._processes.clear()
        self._write()

    def hang(self, function: str, uuid: str = "*") -> None:
        """The next calls of that function (`*`: any) for that card hang until `heal`."""
        self._faults.append(_Fault(function, uuid, "hang"))
        self._write()

    def fail(self, function: str, code: int, uuid: str = "*") -> None:
        """Make those calls end in that error. `nvmlInit` is a function too."""
        self._faults.append(_Fault(function, uuid, "error", code))
        self._write()

    def lose(self, uuid: str) -> None:
        """The card has fallen off the bus: it still counts, but no call about it succeeds."""
        self.fail("*", GPU_IS_LOST, uuid)

    def heal(self) -> None:
        """End all faults; hanging calls continue."""
        self._faults.clear()
        self._write()

    def xid(
        self, uuid: str | None, number: int, *, gpu_instance: int = NO_INSTANCE, compute_instance: int = NO_INSTANCE
    ) -> None:
        """The driver reports that error once, on that card or on one whose uuid cannot be read."""
        self._xids.append(f"xid {len(self._xids) + 1} {uuid or '-'} {number} {gpu_instance} {compute_instance}")
        self._write()

    def set_condition(self, uuid: str, condition: FakeCondition) -> None:
        """Set what NVML reports about that card's health; `heal` does not undo it."""
        self._conditions[uuid] = condition
        self._write()

    def _write(self) -> None:
        lines = [f"driver {self._driver}", f"confidential {self._is_confidential:d}"]
        for gpu in self._gpus:
            lines.append(f"gpu {gpu.uuid} {gpu.minor} {gpu.pci_bus_id} {gpu.memory_mib} {gpu.name}")
            lines += [f"mig_mode {gpu.uuid}"] * gpu.is_cut
            lines += [
                f"mig {gpu.uuid} {part.slot} {part.gpu_instance} {part.compute_instance}"
                f" {part.uuid} {part.memory_mib} {part.name}"
                for part in gpu.instances
            ]
        lines += [
            f"health {uuid} {said.recovery_action} {said.remap_pending} {said.remap_failed}"
            f" {said.retirement_pending} {said.uncorrected}"
            for uuid, said in self._conditions.items()
        ]
        lines += [f"process {uuid} {pid} {used}" for uuid, pid, used in self._processes]
        lines += [f"fault {fault.function} {fault.uuid} {fault.kind} {fault.code}" for fault in self._faults]
        lines += self._xids
        lines += self._samples
        fresh = self.state.with_name(self.state.name + ".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.state)


def allocate_in_process(library: Path, cgroup: Path, uuid: str, mib: int) -> int:
    """Take memory as a process in that cgroup: NVML's code, 0 when it was given, 20 when it is over the limit."""
    stub = ctypes.CDLL(str(library / LIBRARY))
    return int(stub.vrampack_stub_allocate(os.fsencode(cgroup), uuid.encode(), ctypes.c_ulonglong(mib)))


def without_gpu(gpus: tuple[StubGpu, ...], uuid: str) -> tuple[StubGpu, ...]:
    return tuple(gpu for gpu in gpus if gpu.uuid != uuid)


def recut(gpu: StubGpu, into: StubGpu) -> StubGpu:
    """The same card with the instances of another."""
    return replace(gpu, is_cut=into.is_cut, instances=into.instances)


if __name__ == "__main__":
    FakeNvmlMachine(Path(sys.argv[1]), gpus=PROFILES[sys.argv[2]], driver=sys.argv[3] if sys.argv[3:] else DRIVER)
