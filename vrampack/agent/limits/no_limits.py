"""`none`: nobody holds a limit and nobody looks. Chosen by name only, never by `auto`."""

from __future__ import annotations

from collections.abc import Mapping

from vrampack.agent.limits.contract import Applied, AppliedState, ContainerUsage, LimitTarget, Scope, Traits


class NoLimits:
    mode = "none"
    traits = Traits(None, "never", "nothing is held")

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(AppliedState.DEFERRED, "nobody")

    async def release(self, target: LimitTarget) -> None:
        """Nothing is kept."""

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        return ()
