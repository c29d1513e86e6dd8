"""The back end with a simulated module: which pods are registered when, what a check corrects, and what people see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from tests.agent.limits.kmod.kmod_node import DRIVER, IDS, OTHER, UID, KmodNode
from tests.support.scripted_driver import scripted_gpu
from tests.support.simulated_kmod import MIB, write_process
from vrampack.agent.limits.accounting import ProcessUsage, UsageTotals
from vrampack.agent.limits.contract import AppliedState, LimitTarget, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.proc_client import CgroupId
from vrampack.agent.limits.workload import DesiredLimit
from vrampack.cards.request import count_instances


@pytest.fixture
def node(tmp_path: Path) -> KmodNode:
    return KmodNode(tmp_path)


@pytest.fixture
def older(tmp_path: Path) -> KmodNode:
    """A node with cgroup v1."""
    return KmodNode(tmp_path, version=1)


async def test_single_container_pod_is_limited_by_the_pod_cgroup(node: KmodNode) -> None:
    """The hook's question adds nothing then: a card has room for a limited number of instances."""
    folder = node.pod("main")
    assert await node.starts() == AppliedState.IN_FORCE
    assert node.identity_of(UID) == f"cgroup={folder.stat().st_ino}"
    assert await node.starts("main") == AppliedState.IN_FORCE
    assert node.module.limits() == {UID: {0: 4301}}


async def test_the_hook_adds_container_budgets_below_that_of_the_pod(node: KmodNode) -> None:
    folder = node.pod("main", "side", mib=2000)
    await node.starts(mib=4000)
    await node.starts("main", mib=2000)
    assert node.module.limits() == {UID: {0: 4000}, f"{UID}.main": {0: 2000}}
    assert node.identity_of(f"{UID}.main") == f"cgroup={(folder / IDS['main']).stat().st_ino}"


async def test_a_container_gets_its_own_budget_when_that_of_its_pod_is_wrong(node: KmodNode) -> None:
    """For example, kubelet recreated the pod's cgroup."""
    node.pod("main")
    await node.starts()
    node.module.instances[UID].identity = "cgroup=1"
    await node.starts("main")
    assert f"{UID}.main" in node.module.instances


async def test_pod_limit_is_deferred_to_the_hook_on_cgroup_v1(older: KmodNode) -> None:
    older.pod("main")
    write_process(older.proc, 50, (50, 1))
    assert await older.starts() == AppliedState.DEFERRED
    assert older.module.instances == {}
    assert await older.starts("main", pid=50) == AppliedState.IN_FORCE
    assert older.identity_of(f"{UID}.main") == "pidns=50"


async def test_container_without_its_own_pid_namespace_is_refused_on_cgroup_v1(older: KmodNode) -> None:
    older.pod("main")
    write_process(older.proc, 50, (50, 7))
    with pytest.raises(LimitError, match="shareProcessNamespace"):
        await older.starts("main", pid=50)


async def test_a_pod_without_a_cgroup_does_not_start(node: KmodNode) -> None:
    with pytest.raises(LimitError, match="ml/a: its cgroup is not there"):
        await node.starts()


STATES: dict[str, tuple[dict[str, object], str]] = {
    "detached": ({"is_attached": False}, "vrampack limits attach"),
    "gone": ({"is_loaded": False}, "modprobe vrampack"),
    "unguarded": ({"uvm": "unguarded"}, "uvm: unguarded"),
    "before another driver": ({"driver": "570.1"}, "is attached to driver 570.1"),
}


@pytest.mark.parametrize(("state", "why"), STATES.values(), ids=STATES)
async def test_a_module_that_enforces_no_limit_is_reported_and_refuses_starts(
    node: KmodNode, state: dict[str, object], why: str
) -> None:
    node.pod("main")
    assert await node.back_end.reconcile() == ""
    before = node.module.limits()
    for name, value in state.items():
        setattr(node.module, name, value)
    assert why in await node.back_end.reconcile()
    with pytest.raises(LimitError, match=why):
        await node.starts()
    assert node.module.limits() == before  # running containers are left alone


@pytest.mark.parametrize("containers", [("main",), ("main", "side")], ids=len)
async def test_a_pod_takes_as_many_instances_as_the_extender_counts(
    node: KmodNode, containers: tuple[str, ...]
) -> None:
    node.pod(*containers)
    await node.starts(mib=4301 * len(containers))
    before = node.back_end.limits_containers_apart, len(node.module.instances)
    for name in containers:
        await node.starts(name)
    assert (before, node.back_end.limits_containers_apart) == ((False, 1), True)
    assert len(node.module.instances) == count_instances(len(containers))


async def test_instances_that_people_made_are_not_for_pods(node: KmodNode) -> None:
    await node.back_end.reconcile()
    assert node.back_end.card_instances == {"GPU-a": 25, "GPU-b": 25}
    node.module.open_nodes.add_budget("by-hand", CgroupId(7), {0: MIB})
    node.pod("main")
    await node.starts()
    await node.back_end.reconcile()
    assert node.back_end.card_instances == {"GPU-a": 24, "GPU-b": 25}


async def test_a_card_that_comes_later_gets_as_many_instances(node: KmodNode) -> None:
    await node.back_end.reconcile()
    node.gpus["GPU-c"] = scripted_gpu(2)
    assert await node.back_end.reconcile() == ""
    assert node.module.most == {0: 25, 1: 25, 2: 25}
    assert node.back_end.card_instances["GPU-c"] == 25


async def test_cards_are_added_with_the_highest_instance_limit(node: KmodNode) -> None:
    await node.back_end.reconcile()
    assert node.module.most == {0: 25, 1: 25}
    node.module.most = {0: 7, 1: 25}  # set by hand
    await node.restarted().reconcile()
    assert node.module.most == {0: 7, 1: 25}


async def test_a_limit_that_changed_is_pushed(node: KmodNode) -> None:
    node.pod("main")
    await node.starts()
    node.pod("main", mib=2000)
    await node.back_end.reconcile()
    assert node.module.limits() == {UID: {0: 2000}}
    assert [command for command in node.module.commands if command.startswith("add")] == [
        f"add {UID} {node.identity_of(UID)} 0={4301 * MIB}"
    ]


async def test_the_next_agent_keeps_existing_budgets(node: KmodNode) -> None:
    node.pod("main", "side")
    await node.starts(mib=8602)
    await node.starts("main")
    node.module.commands.clear()
    assert await node.restarted().reconcile() == ""
    assert [command for command in node.module.commands if not command.startswith("cards")] == []


async def test_a_reloaded_module_gets_all_budgets_again(node: KmodNode) -> None:
    """No container has a file of its own yet, so each may have one without a second budget."""
    node.pod("main", "side", mib=2000)
    await node.back_end.reconcile()
    node.module.load(DRIVER)
    await node.back_end.reconcile()
    assert node.module.limits() == {UID: {0: 4000}, f"{UID}.main": {0: 2000}, f"{UID}.side": {0: 2000}}
    assert node.module.most == {0: 25, 1: 25}


async def test_container_without_a_hook_request_stays_in_its_pods_budget(node: KmodNode) -> None:
    """What it has open counts there: with an instance of its own it would have a second budget."""
    node.pod("main", "side", mib=2000)
    await node.starts(mib=4000)
    await node.back_end.reconcile()
    assert node.module.limits() == {UID: {0: 4000}}


async def test_reconcile_on_cgroup_v1_finds_the_first_process_without_the_hook(older: KmodNode) -> None:
    older.pod("main")
    write_process(older.proc, 50, (50, 1))
    await older.back_end.reconcile()
    assert older.identity_of(f"{UID}.main") == "pidns=50"


async def test_a_budget_that_cannot_be_applied_is_logged_once_and_blocks_no_other(
    node: KmodNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.pod("main")
    node.pod("main", uid=OTHER)
    node.wanted[UID] = DesiredLimit(UID, {"GPU-gone": 1}, node.wanted[UID].find_cgroup)
    for _ in range(2):
        assert await node.back_end.reconcile() == ""
    assert node.module.limits() == {OTHER: {0: 4301}}
    assert (
        caplog.text.count(f"budget not applied budget={UID} reason={UID}: the driver does not show card GPU-gone") == 1
    )


async def test_two_instances_of_one_gpu_are_refused(node: KmodNode) -> None:
    node.pod("main")
    node.gpus |= {"MIG-a": scripted_gpu(0), "MIG-b": scripted_gpu(0)}
    with pytest.raises(LimitError, match="cannot tell MIG instances of one GPU apart"):
        await node.back_end.apply(Scope.POD, LimitTarget(UID, "ml", "a"), {"MIG-a": 1, "MIG-b": 1})


async def test_a_budget_is_removed_once_its_pod_is_gone_and_no_file_is_open(node: KmodNode) -> None:
    node.pod("main")
    await node.starts()
    node.module.set_usage(UID, 0, 3193)
    node.wanted.clear()
    await node.back_end.reconcile()
    assert UID in node.module.instances  # its processes may still run
    node.gone.add(UID)
    await node.back_end.reconcile()
    assert UID in node.module.instances  # a file was passed to another process
    node.module.end_budget(UID)
    await node.back_end.reconcile()
    assert node.module.instances == {}


async def test_budgets_added_by_hand_are_left_alone(node: KmodNode) -> None:
    node.module.write_file("inst_ctl", "add trial cgroup=9 0=1")
    node.gone.add("trial")
    await node.back_end.reconcile()
    assert "trial" in node.module.instances


async def test_a_caller_that_gives_up_leaves_the_module_to_its_thread(
    node: KmodNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet and the hook stop waiting. What another call reads and writes meanwhile would be mixed with it."""
    node.pod("main")
    has_begun, may_go_on = Event(), Event()
    write_file = node.module.write_file

    def write_late(file_name: str, text: str) -> None:
        monkeypatch.setattr(node.module, "write_file", write_file)
        has_begun.set()
        may_go_on.wait()
        write_file(file_name, text)

    monkeypatch.setattr(node.module, "write_file", write_late)
    starting = asyncio.create_task(node.starts())
    await asyncio.to_thread(has_begun.wait)
    starting.cancel()
    await asyncio.wait([starting])
    reconciling = asyncio.create_task(node.back_end.reconcile())
    done, _ = await asyncio.wait([reconciling], timeout=0.1)
    may_go_on.set()
    assert not done
    assert starting.cancelled()
    assert await reconciling == ""
    assert node.module.limits() == {UID: {0: 4301}}


async def test_use_is_shown_by_container_and_process(node: KmodNode) -> None:
    node.pod("main")
    await node.starts()
    node.module.set_usage(UID, 0, 3193, pid=812, refused=2)
    node.module.set_usage(UID, 0, 100, pid=813)
    await node.back_end.reconcile()
    key = UID, "main", "GPU-a"
    assert node.back_end.list_usage_totals() == {key: UsageTotals(3293 * MIB, 3293 * MIB, 2)}
    assert node.back_end.count_processes() == {(UID, "main"): 2}
    assert node.back_end.process_count == 2
    assert node.back_end.list_processes() == (
        ProcessUsage(812, UID, "", "main", "GPU-a", 3193 * MIB, 0),
        ProcessUsage(813, UID, "", "main", "GPU-a", 100 * MIB, 0),
    )
    assert [row.used_bytes for row in await node.back_end.measure_usage()] == [3293 * MIB]


async def test_usage_of_a_deleted_pod_is_reported_while_its_files_are_open(node: KmodNode) -> None:
    node.pod("main")
    await node.starts()
    await node.back_end.reconcile()
    node.module.set_usage(UID, 0, 3193)
    node.wanted.clear()
    await node.back_end.reconcile()
    assert node.back_end.list_usage_totals() == {(UID, "main", "GPU-a"): UsageTotals(3193 * MIB, 3193 * MIB, 0)}
    await node.restarted().reconcile()  # another agent does not know which container it was
    assert node.back_end.list_usage_totals() == {(UID, "", "GPU-a"): UsageTotals(3193 * MIB, 3193 * MIB, 0)}


async def test_usage_of_containers_without_their_own_budget_is_reported_together(node: KmodNode) -> None:
    node.pod("main", "side", mib=2000)
    await node.starts(mib=4000)
    await node.back_end.reconcile()
    assert node.back_end.list_usage_totals() == {}
    node.module.set_usage(UID, 0, 3000)
    await node.back_end.reconcile()
    assert node.back_end.list_usage_totals() == {(UID, "", "GPU-a"): UsageTotals(3000 * MIB, 3000 * MIB, 0)}
