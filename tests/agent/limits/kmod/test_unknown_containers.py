"""`kmod.unknown`: what the module is told of kubelet's cgroups, and the message where it cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.limits.kmod.kmod_node import DRIVER, UID, KmodNode
from tests.support.scripted_driver import scripted_gpu
from vrampack.agent.settings import KmodSettings

DENY = KmodSettings(unknown="deny")


@pytest.fixture
def node(tmp_path: Path) -> KmodNode:
    found = KmodNode(tmp_path)
    found.restarted(DENY)
    return found


def denied(node: KmodNode) -> dict[str, set[int]]:
    """Cards by identity."""
    return {each.identity: {*each.cards} for each in node.module.instances.values() if each.is_deny}


def identity(folder: Path) -> str:
    return f"cgroup={folder.stat().st_ino}"


async def test_kubelets_cgroup_is_denied_all_cards_after_running_pods_get_limits(node: KmodNode) -> None:
    """Also after a reload of the module, and when a card is added; the next agent leaves the denials as they are."""
    node.pod("main")
    for _ in range(2):
        assert await node.back_end.reconcile() == ""
        words = [command.split()[:2] for command in node.module.commands]
        assert words.index(["add", UID]) < words.index(["deny", f"unknown-{node.pods.stat().st_ino}"])
        assert denied(node) == {identity(node.pods): {0, 1}}
        assert [uid for uid, *_ in node.back_end.list_usage_totals()] == [UID]
        node.module.load(DRIVER)
    await node.back_end.reconcile()
    node.module.commands.clear()
    assert await node.restarted(DENY).reconcile() == ""
    assert not [command for command in node.module.commands if command.startswith("deny")]
    del node.gpus["GPU-b"]
    node.module.load(DRIVER)
    await node.back_end.reconcile()
    node.gpus["GPU-c"] = scripted_gpu(2)
    await node.back_end.reconcile()
    assert denied(node) == {identity(node.pods): {0, 2}}


async def test_only_the_configured_cgroups_are_denied(node: KmodNode) -> None:
    engine = node.mount / "system.slice" / "engine.slice"
    engine.mkdir(parents=True)
    await node.back_end.reconcile()
    settings = KmodSettings(unknown="deny", unknown_cgroups=("/system.slice/engine.slice",))
    assert await node.restarted(settings).reconcile() == ""
    assert denied(node) == {identity(engine): {0, 1}}


async def test_setting_pass_removes_the_agents_denials_and_keeps_manual_ones(node: KmodNode) -> None:
    node.module.write_file("inst_ctl", "deny trial cgroup=9 0")
    await node.back_end.reconcile()
    assert len(denied(node)) == 2
    assert await node.restarted().reconcile() == ""
    assert denied(node) == {"cgroup=9": {0}}


async def test_a_denial_that_cannot_be_enforced_is_reported(tmp_path: Path, node: KmodNode) -> None:
    node.pods.rmdir()
    assert "no cgroup of kubelet's is visible" in await node.back_end.reconcile()
    missing = KmodSettings(unknown="deny", unknown_cgroups=("/gone",))
    assert "gone is not there" in await node.restarted(missing).reconcile()
    older = KmodNode(tmp_path / "older", version=1)
    assert "needs cgroup v2" in await older.restarted(DENY).reconcile()
