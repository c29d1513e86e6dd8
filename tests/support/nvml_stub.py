"""The stub loaded into this process, and a machine for each test."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.nvml.build import LIBRARY, build_stub
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import StubGpu

BUILT = Path(__file__).parents[2] / "build" / "stubs"


def stub_folder() -> Path:
    """The folder of the stub, built once per source."""
    return build_stub(BUILT)


@contextmanager
def load_stub_machine(folder: Path, gpus: tuple[StubGpu, ...]) -> Iterator[FakeNvmlMachine]:
    """Within the block, NVML in this process is the stub: dlopen by name returns the library that is already loaded."""
    ctypes.CDLL(str(stub_folder() / LIBRARY))
    made = FakeNvmlMachine(folder / "state", gpus=gpus)
    before = os.environ.get("VRAMPACK_NVML_STATE")
    os.environ["VRAMPACK_NVML_STATE"] = str(made.state)
    try:
        yield made
    finally:
        made.heal()  # threads that hang in it return
        if before is None:
            del os.environ["VRAMPACK_NVML_STATE"]
        else:
            os.environ["VRAMPACK_NVML_STATE"] = before
