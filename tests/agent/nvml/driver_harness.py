"""The driver on a simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tests.fakes.nvml.machine import FakeNvmlMachine
from vrampack.agent.nvml.nvml_driver import NvmlDriver

MIB = 1024 * 1024
A_CALL_SECONDS = 10.0
SHORT_SECONDS = 0.2
"""Where a call is meant to hang."""

Simulate: TypeAlias = Callable[[str], FakeNvmlMachine]


def a_library(tmp_path: Path, *, seconds: float = A_CALL_SECONDS) -> NvmlDriver:
    return NvmlDriver(call_timeout_seconds=seconds, pci_devices=tmp_path, kernel_module=tmp_path / "nvidia")
