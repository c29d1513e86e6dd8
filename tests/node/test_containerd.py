"""Each containerd of this suite is of the release that was asked for, from its daemon to its shims, and runs pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.containerd_release import RELEASES, ContainerdRelease
from tests.node.containers import SHIM, pids_of
from tests.node.controlplane import NODE_NAME
from tests.node.node import LiveNode, has_ready_condition
from tests.node.node_site import NodeSite
from tests.node.pods import a_pod


@pytest.mark.containerd(*RELEASES)
def test_a_pod_runs_on_the_release_that_was_asked_for(
    bare_node: LiveNode, release: ContainerdRelease, around: NodeSite
) -> None:
    bare_node.apply(a_pod("any", main=0))
    bare_node.wait(lambda: has_ready_condition(bare_node.get("pod", "any")), what=lambda: bare_node.describe(""))

    version = bare_node.get("node", NODE_NAME)["status"]["nodeInfo"]["containerRuntimeVersion"]
    assert version.startswith(f"containerd://{release.name.removeprefix('containerd-')}.")
    built = around.containerd(release.name) / SHIM
    wanted = built if release.packages else Path("/usr/bin") / SHIM
    assert {Path(f"/proc/{pid}/exe").readlink() for pid in pids_of(SHIM)} == {wanted.resolve()}
