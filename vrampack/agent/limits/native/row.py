"""The row of `native`: what the driver's own limits need, and which of two parties sets them."""

from __future__ import annotations

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.cgroups import CGROUP_V2
from vrampack.agent.limits.contract import BackEnd
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.native.backend import NativeByHook, NativeByToolkit
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.limits.usage_meter import UsageMeter

MIN_BRANCH = 615
"""The first driver branch with limits per cgroup."""


class NativeRow(BackEndRow):
    mode = "native"

    def find_obstacle(self, capabilities: NodeCapabilities, context: NodeContext) -> str:  # noqa: ARG002
        missing = []
        if capabilities.driver_branch < MIN_BRANCH:
            missing.append(f"driver {capabilities.driver_version or 'not there'}, {MIN_BRANCH} or newer is needed")
        if capabilities.cgroup_version != CGROUP_V2:
            missing.append("cgroup v1 or hybrid, v2 is needed")
        if capabilities.has_mig:
            missing.append("a card is in MIG mode")
        if capabilities.toolkit is not ToolkitState.READY and not capabilities.has_hook:
            missing.append(
                f"the limit is not set: CDI says {capabilities.toolkit}, and no runtime is configured to call vrampack-hook"
            )
        return "; ".join(missing)

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> BackEnd:
        """The toolkit comes before the hook, because then nothing of ours needs to run."""
        meter = UsageMeter(context.driver, context.workload.find_process_owner)
        is_set_by_toolkit = capabilities.toolkit is ToolkitState.READY
        return NativeByToolkit(meter) if is_set_by_toolkit else NativeByHook(context.driver, meter)
