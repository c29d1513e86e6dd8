"""Confidential computing (H100 and later): with it CUDA needs a mapping at its start that module and library refuse.

With it `cuCtxCreate` maps `nvidia-uvm` (google/gvisor#9921). Module and library refuse every such mapping to limited programs,
because managed memory uses one that looks the same: no limited CUDA program could start, and none would learn why.
"""

from __future__ import annotations

from vrampack.agent.limits.detection import NodeCapabilities


def find_confidential_problem(capabilities: NodeCapabilities, component: str) -> str:
    """Why no program could start under this component; empty when confidential computing is off, or unknown."""
    if not capabilities.has_confidential_computing:
        return ""
    return (
        f"confidential computing is on: CUDA maps nvidia-uvm there, which the {component} refuses to limited programs; "
        "use enforcement native or watch, or turn it off"
    )
