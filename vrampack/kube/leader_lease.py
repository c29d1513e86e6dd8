"""One holder of a Lease: which of several processes may act.

    follower --nobody holds it, or its holder was silent for 15 s--> holder --renews it every 2 s--> holder
       ^                                                               |
       '------- 10 s without a renewal, or another process has it -----'

The figures and the rules are client-go's: https://pkg.go.dev/k8s.io/client-go/tools/leaderelection . Times that other processes
wrote are never compared with a clock, they are only seen to change. Each write carries the version that was read, so of two
processes that take the Lease at once one is refused. A process that was stopped for long (a suspended machine) may act once
more before it notices: what it does has to be harmless then. The Lease itself comes with the installation, because a right to
create Leases cannot be limited to one name.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.objects import LeaseObject

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
"""How long others leave a silent holder its Lease."""
RENEW_DEADLINE_SECONDS = 10.0
"""How long after its last renewal the holder acts: less than others wait, so that two never act at once."""
RETRY_SECONDS = 2.0
CALL_SECONDS = 3.0
"""A read and a write take at most twice that, so that one lost answer does not cost the Lease."""


class LeaseApi(Protocol):
    """The calls of `vrampack.kube.client.Api` that are needed here."""

    async def get_lease(self, namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None: ...
    async def patch_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None: ...


class LeaderLease:
    """One process's claim to one Lease."""

    def __init__(
        self,
        api: LeaseApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`identity` differs from that of every other process; `now` is Unix time, for people who read the Lease."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._held_until = 0.0
        self._seen_version = ""
        self._seen_at = 0.0
        """When the Lease was first seen in this version."""
        self._problem = ""
        """Why it could not be renewed or read at the last try; each is logged once."""

    @property
    def is_held(self) -> bool:
        """Whether this process may act now. Ask again before every act."""
        return self._clock() < self._held_until

    async def run(self, *, is_wanted: Callable[[], bool]) -> None:
        """Take the Lease as soon as possible and keep it while it is wanted, until cancelled; then give it back."""
        try:
            while True:
                await (self.renew() if is_wanted() else self.release())
                await asyncio.sleep(RETRY_SECONDS * random.uniform(1, 1.2))  # noqa: S311 - spreads load
        finally:
            await self.release()

    async def renew(self) -> None:
        """One try: renew the Lease, or take it if it is free."""
        started, was_held = self._clock(), self.is_held
        try:
            lease = await self._api.get_lease(self._namespace, self._name, timeout_seconds=CALL_SECONDS)
            self._note_problem("" if lease is not None else "it is missing; the installation makes it")
            if lease is None or not self._may_take(lease):
                self._held_until = 0.0
                return
            await self._write(lease)
        except (RefusedError, NoAnswerError) as error:
            self._note_problem(str(error))
            return
        self._held_until = started + RENEW_DEADLINE_SECONDS
        if not was_held:
            log.info("lease taken lease=%s/%s identity=%s", self._namespace, self._name, self._identity)

    async def release(self) -> None:
        """Act no more, and let another process take the Lease at once."""
        if not self.is_held:
            return
        self._held_until = 0.0
        try:
            lease = await self._api.get_lease(self._namespace, self._name, timeout_seconds=CALL_SECONDS)
            if lease is not None and lease.spec.holder_identity == self._identity:
                await self._patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (RefusedError, NoAnswerError) as error:
            log.warning("lease not given back lease=%s/%s error=%s", self._namespace, self._name, error)

    def _note_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("lease not renewed lease=%s/%s problem=%s", self._namespace, self._name, problem)
        self._problem = problem

    def _may_take(self, lease: LeaseObject) -> bool:
        """Whether the Lease is this process's, nobody's, or that of a holder that was silent for long enough."""
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version, self._seen_at = lease.metadata.resource_version, self._clock()
        holder = lease.spec.holder_identity
        if not holder or holder == self._identity:
            return True
        return self._clock() >= self._seen_at + (lease.spec.lease_duration_seconds or DURATION_SECONDS)

    async def _write(self, lease: LeaseObject) -> None:
        stamp = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": stamp}
        if lease.spec.holder_identity != self._identity:
            spec |= {"acquireTime": stamp, "leaseTransitions": (lease.spec.lease_transitions or 0) + 1}
        await self._patch(lease, spec)

    async def _patch(self, lease: LeaseObject, spec: Mapping[str, object]) -> None:
        """With the version that was read: if another process wrote meanwhile, the API server answers 409."""
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        await self._api.patch_lease(self._namespace, self._name, body, timeout_seconds=CALL_SECONDS)
