"""The machine behind the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nvml.driver_harness import Simulate
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.support.nvml_stub import load_stub_machine


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Simulate]:
    """Simulates the machine of that profile."""
    with load_stub_machine(tmp_path, ()) as made:

        def simulate_profile(profile: str) -> FakeNvmlMachine:
            made.set_gpus(PROFILES[profile])
            return made

        yield simulate_profile
