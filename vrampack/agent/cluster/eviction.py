"""Evicting a pod of this node."""

from __future__ import annotations

from typing import Protocol

EVICT_CALL_SECONDS = 5.0


class PodEvictor(Protocol):
    """The one call of `vrampack.kube.client.Api` that is needed."""

    async def evict(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None: ...
