"""A row of the table of back ends: how to tell whether one can work here, and how to build it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from vrampack.agent.limits.contract import BackEnd
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.node_context import NodeContext


class BackEndRow(ABC):
    """`mode` is what the setting, the node label and the metric call it."""

    mode: str
    is_enforcing: bool = True
    """Whether it enforces limits; if not, a host without Kubernetes cannot use it."""
    is_automatic: bool = True
    """Whether `auto` may select it; if not, it is selected by name only."""
    is_blind_to_drawing: bool = False
    """Whether it counts only what passes the driver's control file, and misses memory taken through the drawing nodes."""

    @property
    def host_folders(self) -> tuple[Path, ...]:
        """Folders of the node that it needs. The DaemonSet mounts them; on a host without Kubernetes the agent makes them."""
        return ()

    def find_obstacle(self, capabilities: NodeCapabilities, context: NodeContext) -> str:  # noqa: ARG002
        """Everything that the back end lacks on this node, in one sentence; empty when it works."""
        return ""

    @abstractmethod
    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> BackEnd:
        """The back end for this node. Nothing is started or written."""

    def build_for_leftovers(self, context: NodeContext) -> BackEnd | None:  # noqa: ARG002
        """A back end for containers of an earlier agent that still ask it; None when there are none."""
        return None
