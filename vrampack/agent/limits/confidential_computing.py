"""Confidential computing (H100 and later): untried under module and library.

With it `cuCtxCreate` maps `nvidia-uvm` (google/gvisor#9921). Without it too, on an H200: a semaphore pool, which both allow. Whether that is
all that CUDA maps there has not been seen, and a program that misses another mapping does not start and does not say why.
"""

from __future__ import annotations

from vrampack.agent.limits.detection import NodeCapabilities


def find_confidential_problem(capabilities: NodeCapabilities, component: str) -> str:
    """Why no program could start under this component; empty when confidential computing is off, or unknown."""
    if not capabilities.has_confidential_computing:
        return ""
    return (
        f"confidential computing is on: whether CUDA starts under the {component} there has not been seen; "
        "use enforcement native or watch, or turn it off"
    )
