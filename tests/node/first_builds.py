"""`python -m tests.node.first_builds`: what the node runs and Debian lacks, built of Go modules once and then found in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.node.containerd_release import RELEASES
from tests.node.nvidia_toolkit import build_toolkit
from tests.support.chart import helm
from tests.support.control_plane import binaries


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Where they lie."""

    control_plane: Mapping[str, Path]
    """By name, with kubelet and pause."""
    runtimes: Mapping[str, Path]
    """Folders of the containerd releases that are built."""
    toolkit: Path
    helm: Mapping[str, Path]


def build_programs() -> NodePrograms:
    """Minutes the first time. Raises `RuntimeError` without Go."""
    return NodePrograms(
        control_plane=binaries.locate_programs(programs=(*binaries.PROGRAMS, binaries.KUBELET, binaries.PAUSE)),
        runtimes={release.name: folder for release in RELEASES if (folder := release.build())},
        toolkit=build_toolkit(),
        helm={name: helm.locate_helm(name) for name in helm.RELEASES},
    )


if __name__ == "__main__":
    build_programs()
