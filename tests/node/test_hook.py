"""The createRuntime hook, installed as docs/limits.md says: from containerd through the hook to the agent and back.

With version 1 cgroups no back end holds limits: the agent says yes, and the tests see that it was asked.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.node_site import NodeSite
from tests.node.pods import a_pod
from tests.support.processes import REPOSITORY

SOCKET = Path("/run/vrampack/hook.sock")


@pytest.fixture
def hooked(node: LiveNode, around: NodeSite) -> Iterator[LiveNode]:
    """A runtime that calls the hook for every container, and is restored afterwards."""
    folder = around.site / "hook"
    make = ["make", "--silent", "-C", str(REPOSITORY / "shim/hook"), "hook", f"OUT={folder}"]
    subprocess.run(make, check=True)
    base = node.containerd.base_specification
    before = base.read_text()
    hook = {"path": str(folder / "vrampack-hook"), "args": ["vrampack-hook", "--timeout", "1"]}
    base.write_text(json.dumps(json.loads(before) | {"hooks": {"createRuntime": [hook]}}))
    node.restart_containerd()
    try:
        yield node
    finally:
        node.clear()
        base.write_text(before)
        node.restart_containerd()


def starts(node: LiveNode, name: str) -> None:
    node.wait(lambda: has_ready_condition(node.get("pod", name)), what=lambda: node.describe(""))


def was_asked_about(node: LiveNode, name: str) -> bool:
    """Whether the agent was asked about a container of this pod, by its own log."""
    log = node.kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-agent", "--tail=-1").stdout
    return any("limits.pod_limits" in line and f"default/{name} " in line for line in log.splitlines())


def read_start_failure(node: LiveNode, name: str) -> str:
    """What the last start of its container ended in."""
    (status,) = node.get("pod", name)["status"].get("containerStatuses") or [{}]
    states = (status.get("state", {}), status.get("lastState", {}))
    return " ".join(str(each.get("message", "")) for state in states for each in state.values())


def test_the_hook_asks_only_about_containers_with_gpu_memory(hooked: LiveNode) -> None:
    hooked.apply(a_pod("asks", main=4), a_pod("plain", main=0))
    starts(hooked, "asks")
    starts(hooked, "plain")
    assert was_asked_about(hooked, "asks")
    assert not was_asked_about(hooked, "plain")


def test_a_container_does_not_start_without_the_agent_and_reports_why(hooked: LiveNode) -> None:
    """The fence lets it through, and the hook comes after the fence. An agent that comes back answers."""
    SOCKET.unlink()
    hooked.apply(a_pod("asks", main=4), a_pod("plain", main=0))
    starts(hooked, "plain")
    text = f"no agent at {SOCKET}: No such file or directory"
    hooked.wait(lambda: text in read_start_failure(hooked, "asks"), what=lambda: hooked.describe(""))
    assert not has_ready_condition(hooked.get("pod", "asks"))

    hooked.kill_agent()
    starts(hooked, "asks")
    assert was_asked_about(hooked, "asks")
