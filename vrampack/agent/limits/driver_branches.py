"""The driver branches that the kernel module and the library can read."""

from __future__ import annotations

from vrampack.agent.limits.detection import NodeCapabilities

KNOWN_DRIVER_BRANCHES = frozenset({515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595})
"""The branches of `shim/core`; a test compares them. Under any other driver neither component can enforce a limit."""


def find_branch_problem(capabilities: NodeCapabilities, component: str) -> str:
    """Why this component cannot work with this node's driver; empty when it can."""
    if capabilities.driver_branch in KNOWN_DRIVER_BRANCHES:
        return ""
    branches = ", ".join(map(str, sorted(KNOWN_DRIVER_BRANCHES)))
    return f"driver {capabilities.driver_version or 'not there'}, the {component} knows {branches}"
