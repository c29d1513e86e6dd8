"""The row of `preload`: what the library needs on a node, and the server for containers that still have it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.confidential_computing import find_confidential_problem
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.driver_branches import find_branch_problem
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.limits.preload import files
from vrampack.agent.limits.preload.backend import PreloadBackEnd, PreloadPaths
from vrampack.agent.limits.workload import ResolvedContainer, Unresolved


class PreloadRow(BackEndRow):
    mode = "preload"
    is_blind_to_drawing = True

    def __init__(self, paths: PreloadPaths | None = None) -> None:
        self._paths = paths or PreloadPaths()

    @property
    def host_folders(self) -> tuple[Path, ...]:
        return (self._paths.folder,)

    def find_obstacle(self, capabilities: NodeCapabilities, context: NodeContext) -> str:  # noqa: ARG002
        missing = [
            find_branch_problem(capabilities, "library"),
            find_confidential_problem(capabilities, "library"),
            self._find_library_problem(),
        ]
        return "; ".join(filter(None, missing))

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> PreloadBackEnd:  # noqa: ARG002
        return self._build(context, context.workload.resolve_container)

    def build_for_leftovers(self, context: NodeContext) -> PreloadBackEnd | None:
        """A container that was created with the library asks as long as it runs, and silence would stop it."""
        if not (self._paths.folder / files.LIBRARY).exists():
            return None
        return self._build(context, context.workload.resolve_leftover)

    def _find_library_problem(self) -> str:
        if not self._paths.shipped.is_file():
            return f"{self._paths.shipped} is missing from this agent's installation"
        folder = self._paths.folder
        return "" if os.access(folder, os.W_OK) else f"{folder} of the node does not exist or cannot be written to"

    def _build(
        self, context: NodeContext, resolve_container: Callable[[CgroupOwner | None], ResolvedContainer | Unresolved]
    ) -> PreloadBackEnd:
        return PreloadBackEnd(
            self._paths,
            resolve_container=resolve_container,
            get_minors=context.get_minors,
            driver_version=context.get_driver_version,
            find_owner=context.workload.find_process_owner,
        )
