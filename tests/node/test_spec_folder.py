"""The folder of specs cannot be written to: no container starts, its pod gets the reason, and it starts once that is over."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.agent_settings import wait_for_injection
from tests.node.card_agreement import list_container_starts
from tests.node.containerd_release import BUILT_2
from tests.node.containers import kill_process
from tests.node.gpus import read_allocatable, read_card_health, wait_until_offered
from tests.node.injected_cards import assert_cards_injected, log_own_cards, read_logged_cards
from tests.node.node import LiveNode, has_ready_condition
from tests.node.nvidia_spec import SPEC_FOLDER, write_nvidia_spec
from tests.node.pods import a_pod

pytestmark = pytest.mark.containerd(BUILT_2)


MOUNTED_AT = str(SPEC_FOLDER.resolve())
"""In a container, too, /var/run is a link."""


@contextmanager
def unwritable(node: LiveNode) -> Iterator[None]:
    """The agent is root without capabilities: it needs the owner's right."""
    SPEC_FOLDER.chmod(0o555)
    try:
        yield
    finally:
        SPEC_FOLDER.chmod(0o755)


@contextmanager
def read_only(node: LiveNode) -> Iterator[None]:
    """In the agent's own mount namespace, where it is a mount of its own."""
    _run_in_agent(node, "mount", "-o", "remount,bind,ro", MOUNTED_AT)
    try:
        yield
    finally:
        _run_in_agent(node, "mount", "-o", "remount,bind,rw", MOUNTED_AT)


@contextmanager
def full(node: LiveNode) -> Iterator[None]:
    """A file system of two pages lies over it: for NVIDIA's spec, and for what fills it."""
    spec = f"/proc/{os.getpid()}/root{MOUNTED_AT}/nvidia.json"
    _run_in_agent(node, "mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", MOUNTED_AT)
    try:
        _run_in_agent(node, "cp", spec, MOUNTED_AT)
        _run_in_agent(node, "dd", "if=/dev/zero", f"of={MOUNTED_AT}/fills", "bs=4096", "count=1")
        yield
    finally:
        _run_in_agent(node, "umount", MOUNTED_AT)


def _run_in_agent(node: LiveNode, *command: str) -> None:
    """Its image has no programs for this; ours is reached by way of this process, which it sees."""
    (pid,) = node.agent_pids()
    program = f"/proc/{os.getpid()}/root{shutil.which('busybox')}"
    done = subprocess.run(
        ["nsenter", f"--target={pid}", "--mount", program, *command], check=False, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr


FAULTS: dict[str, Callable[[LiveNode], AbstractContextManager[None]]] = {
    "Permission denied": unwritable,
    "Read-only file system": read_only,
    "No space left on device": full,
}


def read_waiting_message(node: LiveNode, name: str) -> str:
    """Kubelet's reason why its container does not start."""
    statuses = (node.get("pod", name) or {"status": {}})["status"].get("containerStatuses", [])
    return " ".join(str(each["state"].get("waiting", {}).get("message", "")) for each in statuses)


def is_ready(node: LiveNode, name: str) -> bool:
    return has_ready_condition(node.get("pod", name))


def assert_none_has_started(node: LiveNode, name: str, text: str) -> None:
    node.wait(lambda: text in read_waiting_message(node, name), what=lambda: f"{text}: {node.events(name)}")
    assert text in node.events(name)
    assert read_logged_cards(name) == []


def test_nothing_starts_while_no_spec_can_be_written(node: LiveNode, cards: FakeNvmlMachine) -> None:
    (gpu,) = cards.gpus
    names = [f"waits-{place}" for place in range(len(FAULTS))]
    for name, (text, fault) in zip(names, FAULTS.items(), strict=True):
        with fault(node):
            node.apply(log_own_cards(a_pod(name, main=4)))
            assert_none_has_started(node, name, f"no spec can be written into {SPEC_FOLDER}: {text}")
        # A fault that lasts takes the card away; kubelet tells the scheduler seconds after the agent has told it.
        node.wait(
            lambda: read_card_health(node) == {gpu.uuid: True} and read_allocatable(node) > 0,
            what="the card is offered",
        )

    for name in names:
        node.wait(partial(is_ready, node, name), what=lambda: node.describe(""))
        assert_cards_injected(node, name, {gpu.uuid: gpu.minor})
        assert read_logged_cards(name) == [[f"nvidia{gpu.minor}"]]


def test_a_removed_spec_folder_is_used_again_once_recreated(node: LiveNode, cards: FakeNvmlMachine) -> None:
    """An administrator removes it, and NVIDIA's tools make it again. The agent has the deleted one mounted, and restarts."""
    (gpu,) = cards.gpus
    node.apply(a_pod("restarts", main=4))
    node.wait(lambda: is_ready(node, "restarts"), what=lambda: node.describe(""))
    agent = node.agent_pids()

    shutil.rmtree(SPEC_FOLDER)
    try:
        node.kubectl("exec", "restarts", "--", "kill", "1", check=False)
        reason = f"no CDI spec of NVIDIA's in /etc/cdi or {SPEC_FOLDER}"
        node.wait(lambda: reason in read_waiting_message(node, "restarts"), what=lambda: node.describe(""))
        assert list_container_starts(node, "restarts") == []
    finally:
        write_nvidia_spec(cards.gpus, node.driver.mounts)
    node.wait(lambda: is_ready(node, "restarts"), what=lambda: node.describe(""))
    assert_cards_injected(node, "restarts", {gpu.uuid: gpu.minor})
    node.wait(lambda: set(node.agent_pids()).isdisjoint(agent), what="another agent")

    for pid in node.agent_pids():  # one that began before the spec came looks again within a minute
        kill_process(pid)
    wait_for_injection(node, "cdi")
    wait_until_offered(node, cards.gpus)
