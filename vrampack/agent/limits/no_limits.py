"""`none`: no limit is enforced and nothing is measured. Selected by name only, never by `auto`."""

from __future__ import annotations

from collections.abc import Mapping

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.contract import Applied, AppliedState, BackEnd, LimitTarget, Scope, Traits
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.node_context import NodeContext


class NoLimits(BackEnd):
    traits = Traits(None, "never", "nothing is held")

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(AppliedState.DEFERRED, "nothing")


class NoLimitsRow(BackEndRow):
    mode = "none"
    is_enforcing = False
    is_automatic = False

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> NoLimits:  # noqa: ARG002
        return NoLimits()
