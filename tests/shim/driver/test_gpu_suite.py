"""A dry run of the GPU suite: its points of the driver's own calls on the simulated driver, so that its own errors show before a GPU is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.gpu.machine import GpuMachine, RealCard
from tests.gpu.points import DRIVER_POINTS


class SimulatedMachine(GpuMachine):
    """Like a GPU machine, except for where the driver's files are and who reports what is in use."""

    def __init__(self, driver: FakeDriver, scratch: Path) -> None:
        card = driver.cards[0]
        super().__init__(RealCard(card.uuid, "a simulated card", driver.version, card.memory_mib), None, scratch)
        self._driver = driver

    async def card_used_mib(self) -> int:
        return self._driver.state().cards[0].used // MIB

    @property
    def _app_options(self) -> list[str]:
        return [*super()._app_options, "--control", str(self._driver.control)]

    def _environment(self, *, is_limited: bool, container: str) -> Mapping[str, str]:
        inherited = super()._environment(is_limited=is_limited, container=container)
        return {**inherited, "RM_CONTROL": str(self._driver.control)}


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu")


@pytest.mark.parametrize("name", DRIVER_POINTS)
@pytest.mark.parametrize("driver", ["535.129.03", "580.95.05"], indirect=True)
async def test_a_point_passes_on_the_simulated_driver(driver: FakeDriver, scratch: Path, name: str) -> None:
    seen = await DRIVER_POINTS[name](SimulatedMachine(driver, scratch))
    assert seen.ok, seen.what
