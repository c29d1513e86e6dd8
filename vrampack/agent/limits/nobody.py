"""`none`: nobody holds a limit and nobody looks. Chosen by name only, never by `auto`."""

from __future__ import annotations

from collections.abc import Mapping

from vrampack.agent.limits.contract import Applied, Identity, Scope, Standing, Traits, Usage


class Nobody:
    word = "none"
    traits = Traits(None, "never", "nothing is held")

    async def apply(self, scope: Scope, identity: Identity, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(Standing.DEFERRED, "nobody")

    async def release(self, identity: Identity) -> None:
        """Nothing is kept."""

    async def usage(self) -> tuple[Usage, ...]:
        return ()
