"""`watch`: nobody holds the limit; the agent measures, says who is over it, and may ask for an eviction.

Nothing is remembered of a pod but since when it is over: limits are read from the pods' records each time, so a
restarted agent goes on where the old one was, with the clock of each excess at zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from vrampack.agent.limits.contract import Applied, Identity, Scope, Standing, Traits, Usage
from vrampack.agent.limits.measure import Measure

MIB = 1 << 20

LimitsOf: TypeAlias = Callable[[str, str], Mapping[str, int] | None]
"""`(pod uid, container name)` to MiB per card uuid; None for a pod or a container that nobody knows."""
NameOf: TypeAlias = Callable[[str, str], str | None]
"""`(pod uid, container id)` to the container's name; None while the pod's status does not say it."""


@dataclass(frozen=True, slots=True)
class Over:
    """A container that uses more of a card than it was given."""

    pod_uid: str
    container: str
    uuid: str
    used_mib: int
    limit_mib: int
    lasted_seconds: float
    is_to_evict: bool


class Watch:
    """Call `look` every few seconds; it answers with everybody who is over now."""

    word = "watch"
    traits = Traits(None, "never; who is over is reported", "restarts of everything: limits are read from the records")

    def __init__(
        self,
        measure: Measure,
        limits_of: LimitsOf,
        name_of: NameOf,
        clock: Callable[[], float],
        *,
        slack_mib: int = 512,
        evict_after_seconds: float | None = None,
    ) -> None:
        """`slack_mib`: what a process costs beside its own memory (context, kernels; about 450 MiB on a T4).

        `evict_after_seconds`: how long somebody may be over before `is_to_evict` says so; None is never.
        """
        self._measure = measure
        self._limits_of = limits_of
        self._name_of = name_of
        self._clock = clock
        self._slack_mib = slack_mib
        self._evict_after_seconds = evict_after_seconds
        self._since: dict[tuple[str, str, str], float] = {}

    async def apply(self, scope: Scope, identity: Identity, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(Standing.DEFERRED, "nobody; use is measured")

    async def release(self, identity: Identity) -> None:
        """Who is gone is not measured any more."""

    async def usage(self) -> tuple[Usage, ...]:
        return await self._measure.usage()

    async def look(self) -> tuple[Over, ...]:
        """Everybody who is over now, in stable order."""
        used = self._used_by_name(await self._measure.usage())
        now = self._clock()
        excesses = {key: limit for key, used_mib in used.items() if (limit := self._exceeded(key, used_mib))}
        self._since = {key: self._since.get(key, now) for key in excesses}
        return tuple(self._over(key, used[key], limit, now) for key, limit in sorted(excesses.items()))

    def _used_by_name(self, usage: tuple[Usage, ...]) -> dict[tuple[str, str, str], int]:
        """Whole MiB, rounded up. A container that was just restarted may still have processes under its old id."""
        used: Counter[tuple[str, str, str]] = Counter()
        for row in usage:
            name = self._name_of(row.pod_uid, row.container_id)
            if name is not None:
                used[row.pod_uid, name, row.uuid] += row.used_bytes
        return {key: -(-used_bytes // MIB) for key, used_bytes in used.items()}

    def _exceeded(self, key: tuple[str, str, str], used_mib: int) -> int | None:
        pod_uid, container, uuid = key
        limit_mib = (self._limits_of(pod_uid, container) or {}).get(uuid)
        if limit_mib is None or used_mib <= limit_mib + self._slack_mib:
            return None
        return limit_mib

    def _over(self, key: tuple[str, str, str], used_mib: int, limit_mib: int, now: float) -> Over:
        lasted = now - self._since[key]
        evict_after = self._evict_after_seconds
        return Over(*key, used_mib, limit_mib, lasted, is_to_evict=evict_after is not None and lasted >= evict_after)
