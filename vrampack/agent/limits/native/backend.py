"""`native`: the NVIDIA driver (615 and newer, cgroup v2, no MIG) enforces the limit of a container's own cgroup.

It must be that cgroup and no other: a limit on the pod's may not reach its containers (a new leaf of the kernel's dmem
controller starts at `max`). So nothing can be done before the container's cgroup exists, and memory taken before the limit is
not charged: the only right moment is after its creation and before its first process. Two programs can act then:

* `NativeByToolkit`: NVIDIA's container toolkit, by our environment variable. The agent has nothing left to do.
* `NativeByHook`: our createRuntime hook asks the agent (`hook_server.py`), and the agent tells the driver.

The driver drops a limit with its cgroup. Only a hard limit is set: a soft one would have to be zeroed before its cgroup
dies, or it leaks upwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vrampack.agent.limits.contract import (
    Applied,
    AppliedState,
    BackEnd,
    ContainerUsage,
    LimitTarget,
    Scope,
    Traits,
)
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.agent.nvml.errors import DriverError

SURVIVES = "restarts of the agent and the kubelet; it goes with the container's cgroup"


class LimitSetter(Protocol):
    """The only driver call needed here."""

    async def set_limit(self, cgroup_path: str, uuid: str, mib: int, /) -> None:
        """Set the hard limit of one cgroup on one card. Raises `DriverError` when it is not set."""


class NativeByToolkit(BackEnd):
    """The toolkit's CDI hook reads NVIDIA_GPU_MEMORY_LIMIT, which was set from the pod's record."""

    traits = Traits(Scope.CONTAINER, "at container start, by the container toolkit", SURVIVES)
    needs_toolkit = True

    def __init__(self, meter: UsageMeter) -> None:
        self._meter = meter

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(AppliedState.DEFERRED, "in force at container start, by the container toolkit")

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        return await self._meter.measure_usage()


class NativeByHook(BackEnd):
    """The agent sets the limit when the createRuntime hook asks for it."""

    traits = Traits(Scope.CONTAINER, "before the container's first process, by the createRuntime hook", SURVIVES)
    needs_hook = True

    def __init__(self, driver: LimitSetter, meter: UsageMeter) -> None:
        self._driver = driver
        self._meter = meter

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        if scope is Scope.POD:
            return Applied(AppliedState.DEFERRED, "in force at container start, by the createRuntime hook")
        if target.cgroup is None:
            raise LimitError(f"{target}: the container's cgroup is not known")
        for uuid, mib in sorted(limits.items()):
            if mib <= 0:
                raise LimitError(f"{target}: {mib} MiB of {uuid} is not a limit")
            try:
                await self._driver.set_limit(str(target.cgroup), uuid, mib)
            except DriverError as error:
                raise LimitError(f"{target}: the driver refused: {error}") from error
        return Applied(AppliedState.IN_FORCE, "the driver")

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        return await self._meter.measure_usage()
