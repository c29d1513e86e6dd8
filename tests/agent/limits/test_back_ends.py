"""What every back end does with a limit, and what is measured with any of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.limits.simulated_driver import MIB, SimulatedLimitDriver, build_measure
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.contract import AppliedState, BackEnd, ContainerUsage, LimitTarget, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.native.backend import NativeByHook, NativeByToolkit
from vrampack.agent.limits.no_limits import NoLimits
from vrampack.agent.limits.overuse_monitor import OveruseMonitor
from vrampack.agent.nvml.errors import DriverError

POD = LimitTarget("u-1", "ml", "app-0")
MAIN = replace(POD, container="main", cgroup=Path("/sys/fs/cgroup/kubepods/podu-1/c"))


def back_ends(driver: SimulatedLimitDriver) -> list[BackEnd]:
    measure = build_measure(driver)
    watch = OveruseMonitor(measure, lambda *_: None, lambda *_: None, lambda: 0.0)
    return [NativeByToolkit(measure), NativeByHook(driver, measure), watch, NoLimits()]


@pytest.mark.parametrize(("at", "by"), list(enumerate(["toolkit", "createRuntime hook", "use is measured", "nothing"])))
async def test_pod_limit_is_deferred_to_its_containers(at: int, by: str) -> None:
    driver = SimulatedLimitDriver()
    back_end = back_ends(driver)[at]
    applied = await back_end.apply(Scope.POD, POD, {"GPU-a": 4301})
    assert applied.state is AppliedState.DEFERRED
    assert by in applied.held_by
    assert driver.limits == {}
    await back_end.release(POD)


async def test_the_hook_s_back_end_passes_cgroup_card_and_mib_to_the_driver() -> None:
    driver = SimulatedLimitDriver()
    applied = await NativeByHook(driver, build_measure(driver)).apply(
        Scope.CONTAINER, MAIN, {"GPU-b": 12, "GPU-a": 4301}
    )
    assert applied.state is AppliedState.IN_FORCE
    assert driver.limits == {(str(MAIN.cgroup), "GPU-a"): 4301, (str(MAIN.cgroup), "GPU-b"): 12}


@pytest.mark.parametrize("at", [0, 2, 3])
async def test_other_back_ends_set_no_driver_limit(at: int) -> None:
    driver = SimulatedLimitDriver()
    applied = await back_ends(driver)[at].apply(Scope.CONTAINER, MAIN, {"GPU-a": 4301})
    assert applied.state is AppliedState.DEFERRED
    assert driver.limits == {}


@pytest.mark.parametrize("mib", [0, -1])
async def test_a_limit_that_is_not_positive_is_refused(mib: int) -> None:
    """A driver may take 0 for `no limit`."""
    driver = SimulatedLimitDriver()
    with pytest.raises(LimitError, match=f"ml/app-0/main: {mib} MiB of GPU-a is not a limit"):
        await NativeByHook(driver, build_measure(driver)).apply(Scope.CONTAINER, MAIN, {"GPU-a": mib})
    assert driver.limits == {}


async def test_container_without_a_cgroup_is_refused() -> None:
    driver = SimulatedLimitDriver()
    with pytest.raises(LimitError, match="cgroup is not known"):
        await NativeByHook(driver, build_measure(driver)).apply(
            Scope.CONTAINER, replace(MAIN, cgroup=None), {"GPU-a": 1}
        )


async def test_a_limit_that_the_driver_refuses_is_an_error() -> None:
    driver = SimulatedLimitDriver(fails=DriverError("a limit of card GPU-a: Invalid Argument", 2))
    with pytest.raises(LimitError, match="ml/app-0/main: the driver refused: a limit of card GPU-a"):
        await NativeByHook(driver, build_measure(driver)).apply(Scope.CONTAINER, MAIN, {"GPU-a": 1})


async def test_use_is_summed_by_container_and_card() -> None:
    driver = SimulatedLimitDriver()
    driver.set_usage("GPU-b", p7=100, p8=20, p9=3, p10=None, p11=7)
    driver.set_usage("GPU-a", p7=1)
    # 7 and 8 are one container's, 9 is in the pod beside its containers, 11 is in no pod
    owners = {
        7: CgroupOwner("u-1", "c-1"),
        8: CgroupOwner("u-1", "c-1"),
        9: CgroupOwner("u-1"),
        10: CgroupOwner("u-1", "c-1"),
    }
    assert await build_measure(driver, owners).measure_usage() == (
        ContainerUsage("u-1", "", "GPU-b", 3 * MIB),
        ContainerUsage("u-1", "c-1", "GPU-a", 1 * MIB),
        ContainerUsage("u-1", "c-1", "GPU-b", 120 * MIB),
    )
