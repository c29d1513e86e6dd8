"""`watch`: no limit is enforced; the agent measures, reports containers above their limits, and may ask for an eviction.

It only remembers since when a container has been above its limit, and reads limits from the pods' records each time. So a
restarted agent continues where the old one was, but counts each excess from zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.contract import (
    Applied,
    AppliedState,
    BackEnd,
    ContainerUsage,
    LimitTarget,
    OverLimit,
    Scope,
    Traits,
)
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.limits.usage_meter import UsageMeter
from vrampack.cards.units import MIB

GetLimits: TypeAlias = Callable[[str, str], Mapping[str, int] | None]
"""`(pod uid, container name)` to MiB per card uuid; None for an unknown pod or container."""
GetContainerName: TypeAlias = Callable[[str, str], str | None]
"""`(pod uid, container id)` to the container's name; None while the pod's status does not say it."""


class OveruseMonitor(BackEnd):
    """Call `list_over_limit` every few seconds; it returns all containers that are above their limits now."""

    traits = Traits(None, "never; who is over is reported", "restarts of everything: limits are read from the records")

    def __init__(
        self,
        meter: UsageMeter,
        get_limits_mib: GetLimits,
        get_container_name: GetContainerName,
        clock: Callable[[], float],
        *,
        slack_mib: int = 512,
        evict_after_seconds: float | None = None,
    ) -> None:
        """`slack_mib`: what a process costs besides its own memory (context, kernels; about 450 MiB on a T4).

        `evict_after_seconds`: how long a container may be above before `should_evict` is set; None: never.
        """
        self._meter = meter
        self._get_limits_mib = get_limits_mib
        self._get_container_name = get_container_name
        self._clock = clock
        self._slack_mib = slack_mib
        self._evict_after_seconds = evict_after_seconds
        self._since: dict[tuple[str, str, str], float] = {}

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(AppliedState.DEFERRED, "nothing; use is measured")

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        return await self._meter.measure_usage()

    async def list_over_limit(self) -> tuple[OverLimit, ...]:
        """All containers that are above their limits now, in stable order."""
        used = self._used_by_name(await self._meter.measure_usage())
        now = self._clock()
        excesses = {key: limit for key, used_mib in used.items() if (limit := self._find_exceeded_limit(key, used_mib))}
        self._since = {key: self._since.get(key, now) for key in excesses}
        return tuple(self._build_over_limit(key, used[key], limit, now) for key, limit in sorted(excesses.items()))

    def _used_by_name(self, usage: tuple[ContainerUsage, ...]) -> dict[tuple[str, str, str], int]:
        """Whole MiB, rounded up. A container that was just restarted may still have processes under its old id."""
        used: Counter[tuple[str, str, str]] = Counter()
        for row in usage:
            name = self._get_container_name(row.pod_uid, row.container_id)
            if name is not None:
                used[row.pod_uid, name, row.uuid] += row.used_bytes
        return {key: -(-used_bytes // MIB) for key, used_bytes in used.items()}

    def _find_exceeded_limit(self, key: tuple[str, str, str], used_mib: int) -> int | None:
        pod_uid, container, uuid = key
        limit_mib = (self._get_limits_mib(pod_uid, container) or {}).get(uuid)
        if limit_mib is None or used_mib <= limit_mib + self._slack_mib:
            return None
        return limit_mib

    def _build_over_limit(self, key: tuple[str, str, str], used_mib: int, limit_mib: int, now: float) -> OverLimit:
        lasted = now - self._since[key]
        evict_after = self._evict_after_seconds
        return OverLimit(
            *key, used_mib, limit_mib, lasted, should_evict=evict_after is not None and lasted >= evict_after
        )


class OveruseMonitorRow(BackEndRow):
    mode = "watch"
    is_enforcing = False

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> OveruseMonitor:  # noqa: ARG002
        return OveruseMonitor(
            UsageMeter(context.driver, context.workload.find_process_owner),
            context.workload.get_limits_mib,
            context.workload.get_container_name,
            context.clock,
            slack_mib=context.overuse.slack_mib,
            evict_after_seconds=context.overuse.evict_after_seconds,
        )
