"""One Lease as an API server keeps it: with a version that a write may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import LeaseObject, LeaseSpec, ObjectMeta


class LeaseServer:
    """A `vrampack.kube.leader_lease.LeaseApi` without a network."""

    def __init__(self) -> None:
        self.version = 1
        self.spec: dict[str, Any] = {}  # Any: a Lease's fields are texts and numbers
        self.fault: Exception | None = None
        self.is_there = True

    async def get_lease(self, namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None:  # noqa: ARG002 - the real one's shape
        self._fail()
        spec = LeaseSpec(
            self.spec.get("holderIdentity"), self.spec.get("leaseDurationSeconds"), self.spec.get("leaseTransitions")
        )
        return LeaseObject(ObjectMeta(resource_version=str(self.version)), spec) if self.is_there else None

    async def patch_lease(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,  # noqa: ARG002 - the real one's shape
        body: Mapping[str, Any],
        *,
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
    ) -> None:
        self._fail()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise RefusedError(409, "Conflict", "the object has been modified")
        self.version += 1
        self.spec.update(body["spec"])

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault
