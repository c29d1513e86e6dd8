"""The row of `kmod`: what the kernel module needs on a node."""

from __future__ import annotations

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.cgroups import CGROUP_V2
from vrampack.agent.limits.confidential_computing import find_confidential_problem
from vrampack.agent.limits.detection import RUNTIME_SPECS, NodeCapabilities
from vrampack.agent.limits.driver_branches import find_branch_problem
from vrampack.agent.limits.kmod.backend import KmodBackEnd
from vrampack.agent.limits.kmod.preflight import find_preflight_problem
from vrampack.agent.limits.kmod.proc_client import KmodClient
from vrampack.agent.limits.node_context import NodeContext


class KmodRow(BackEndRow):
    mode = "kmod"
    is_blind_to_drawing = True

    def __init__(self, client: KmodClient | None = None) -> None:
        self._client = client or KmodClient()

    def find_obstacle(self, capabilities: NodeCapabilities, context: NodeContext) -> str:
        version = capabilities.cgroup_version
        missing = [
            find_branch_problem(capabilities, "module"),
            find_confidential_problem(capabilities, "module"),
            find_preflight_problem(self._client, cgroup_version=version, proc=context.paths.proc),
        ]
        if version != CGROUP_V2 and not capabilities.has_hook:
            missing.append(
                "cgroup v1, where only the hook can identify containers, and no runtime is configured to call vrampack-hook"
            )
        return "; ".join(filter(None, missing))

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> KmodBackEnd:  # noqa: ARG002
        # Without what the agent's own specs carry: they name the hook only where limits need it.
        has_hook = context.detect_capabilities(runtime_specs=RUNTIME_SPECS).has_hook
        return KmodBackEnd(self._client, context, has_hook=has_hook)
