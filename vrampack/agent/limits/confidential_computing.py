"""Confidential computing (H100 and later): CUDA starts there by a mapping that module and library refuse.

`cuCtxCreate` maps `nvidia-uvm` there (google/gvisor#9921). Both refuse every such mapping to limited programs, for managed
memory is made by one that looks the same: no limited CUDA program could start, and none would be told why.
"""

from __future__ import annotations

from vrampack.agent.limits.detection import NodeCapabilities


def find_confidential_problem(capabilities: NodeCapabilities, component: str) -> str:
    """Why no program could start under this component; empty when confidential computing is off, or not known of."""
    if not capabilities.has_confidential_computing:
        return ""
    return (
        f"confidential computing is on: CUDA maps nvidia-uvm there, which the {component} refuses to limited programs; "
        "use enforcement native or watch, or turn it off"
    )
