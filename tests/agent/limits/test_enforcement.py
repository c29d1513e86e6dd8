"""What both agents hold: every row of the table keeps the contract, and nothing is enforced until a back end has started."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.agent.limits.limit_node import LIMITS, OLD_DRIVER, READY, UID, FakeCards, LimitNode
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.limits import enforcement, enforcement_starter
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.back_ends import BACK_ENDS
from vrampack.agent.limits.contract import Applied, AppliedState, BackEnd, LimitTarget, Scope, Traits
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.errors import ImpossibleBackEndError, LimitError
from vrampack.agent.limits.hook_server import HookQuestion, HookServer
from vrampack.agent.limits.node_context import NodeContext
from vrampack.backoff import Backoff

POD = LimitTarget(UID, "ml", "app-0")
OLDER = replace(READY, driver_version=OLD_DRIVER)
WORKS_WITH = {"native": READY, "kmod": OLDER, "preload": OLDER, "watch": OLDER, "none": OLDER}
CASES = {
    **{row.mode: (row.mode, WORKS_WITH[row.mode]) for row in BACK_ENDS},
    "native by the hook": ("native", replace(READY, toolkit=ToolkitState.ABSENT)),
}


@pytest.fixture
def node(tmp_path: Path) -> LimitNode:
    return LimitNode(tmp_path)


def find_row(node: LimitNode, mode: str) -> BackEndRow:
    (row,) = [row for row in node.rows if row.mode == mode]
    return row


@pytest.mark.parametrize(("mode", "capabilities"), CASES.values(), ids=CASES)
async def test_every_back_end_keeps_the_contract_and_starts_again_after_a_stop(
    mode: str, capabilities: NodeCapabilities, node: LimitNode
) -> None:
    row = find_row(node, mode)
    assert row.find_obstacle(capabilities, node.context) == ""
    back_end = row.build(capabilities, node.context)
    container = replace(POD, container="main", cgroup=node.container_cgroup)
    for _ in range(2):
        await back_end.start()
        assert await back_end.reconcile() == ""
        for scope, target in ((Scope.POD, POD), (Scope.CONTAINER, container)):
            applied = await back_end.apply(scope, target, LIMITS)
            assert applied.state in AppliedState
            assert applied.held_by
        assert all(Path(path).is_absolute() for pair in back_end.list_mounts().items() for path in pair)
        assert sum(row.used_bytes for row in await back_end.measure_usage() or ()) == 0
        assert await back_end.list_over_limit() == ()
        accounting = back_end.accounting
        if accounting is not None:
            assert sum(totals.used_bytes for totals in accounting.list_usage_totals().values()) == 0
            assert (accounting.count_processes(), accounting.process_count) == ({}, 0)
            assert tuple(accounting.list_processes()) == ()
        await back_end.release(container)
        back_end.forget_pod(UID)
        back_end.stop()
    back_end.stop()


@pytest.mark.parametrize(("mode", "capabilities"), CASES.values(), ids=CASES)
async def test_back_end_is_marked_enforcing_if_and_only_if_it_has_a_granularity(
    mode: str, capabilities: NodeCapabilities, node: LimitNode
) -> None:
    row = find_row(node, mode)
    assert row.is_enforcing is (row.build(capabilities, node.context).traits.granularity is not None)


class FakeBackEnd(BackEnd):
    """Records what it is told; does not start if a test says so."""

    traits = Traits(Scope.POD, "at once", "nothing")

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.log: list[str] = []
        self.problem = ""
        self.reconciled = asyncio.Event()

    async def start(self) -> None:
        self.log.append("start")
        if self.fails:
            raise OSError("no room")

    def stop(self) -> None:
        self.log.append("stop")

    async def reconcile(self) -> str:
        self.reconciled.set()
        return self.problem

    def forget_pod(self, pod_uid: str) -> None:
        self.log.append(f"forget {pod_uid}")

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:  # noqa: ARG002
        return Applied(AppliedState.IN_FORCE, "a test")


@dataclass
class FakeRow(BackEndRow):
    mode: str
    back_end: FakeBackEnd
    leftover: FakeBackEnd | None = None

    def build(self, capabilities: NodeCapabilities, context: NodeContext) -> FakeBackEnd:  # noqa: ARG002
        return self.back_end

    def build_for_leftovers(self, context: NodeContext) -> FakeBackEnd | None:  # noqa: ARG002
        return self.leftover


async def test_no_limit_is_applied_before_the_back_end_has_started(node: LimitNode) -> None:
    limits = Enforcement("fake", node.context, rows=[FakeRow("fake", FakeBackEnd())])
    with pytest.raises(LimitError, match="no back end on this node can enforce its limit"):
        await limits.apply(Scope.POD, POD, LIMITS)
    assert (limits.mode, limits.accounting, await limits.measure_usage()) == ("", None, None)
    await limits.start(limits.select(READY))
    assert (await limits.apply(Scope.POD, POD, LIMITS)).state is AppliedState.IN_FORCE
    assert limits.mode == "fake"


@pytest.mark.parametrize("presence", [CardPresence.MISSING, CardPresence.UNKNOWN])
async def test_no_limit_is_applied_on_a_card_that_the_driver_does_not_list(
    node: LimitNode, presence: CardPresence
) -> None:
    """The hook asks for containers that kubelet started without asking, too."""
    held = Enforcement("watch", replace(node.context, cards=FakeCards(presence=presence)), rows=node.rows)
    await held.start(held.select(OLDER))
    with pytest.raises(LimitError, match=r"ml/app-0: .*card GPU-0 is "):
        await held.apply(Scope.CONTAINER, POD, LIMITS)


async def test_a_back_end_that_does_not_start_is_stopped_and_enforces_nothing(node: LimitNode) -> None:
    broken = FakeBackEnd(fails=True)
    limits = Enforcement("fake", node.context, rows=[FakeRow("fake", broken)])
    with pytest.raises(OSError, match="no room"):
        await limits.start(limits.select(READY))
    assert broken.log == ["start", "stop"]
    with pytest.raises(LimitError):
        await limits.apply(Scope.POD, POD, LIMITS)
    broken.fails = False
    await limits.start(limits.select(READY))
    await limits.apply(Scope.POD, POD, LIMITS)


DRAWING = {
    "none": ((), None, ""),
    "modeset alone": (("nvidia_modeset",), None, "/dev/nvidia-modeset"),
    "drm without modeset": (("nvidia_modeset", "nvidia_drm"), "N", "/dev/nvidia-modeset"),
    "drm with modeset": (("nvidia_modeset", "nvidia_drm"), "Y", "/dev/nvidia-modeset,/dev/dri/renderD*"),
    "drm that does not say": (("nvidia_drm",), None, "/dev/dri/renderD*"),
}


@pytest.mark.parametrize(("modules", "modeset", "nodes"), DRAWING.values(), ids=DRAWING)
@pytest.mark.parametrize("mode", ["kmod", "preload", "watch"])
async def test_graphics_device_nodes_are_warned_of_when_their_memory_is_not_limited(
    mode: str,
    modules: tuple[str, ...],
    modeset: str | None,
    nodes: str,
    node: LimitNode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module in modules:
        (node.context.paths.modules / module / "parameters").mkdir(parents=True)
    if modeset is not None:
        (node.context.paths.modules / "nvidia_drm" / "parameters" / "modeset").write_text(f"{modeset}\n")
    limits = Enforcement(mode, node.context, rows=node.rows)
    await limits.start(limits.select(OLDER))
    limits.stop()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    is_expected = bool(nodes) and mode != "watch"
    assert [line.partition(" advice=")[0] for line in said] == [
        f"drawing not counted mode={mode} nodes={nodes}"
    ] * is_expected


async def test_a_back_end_can_be_selected_once_its_module_is_loaded(node: LimitNode) -> None:
    node.module.is_loaded = False
    limits = Enforcement("kmod", node.context, rows=node.rows)
    with pytest.raises(ImpossibleBackEndError):
        limits.select(OLDER)
    node.module.is_loaded = True
    await limits.start(limits.select(OLDER))
    assert limits.mode == "kmod"


async def test_leftover_back_ends_run_beside_the_selected_one(
    node: LimitNode, caplog: pytest.LogCaptureFixture
) -> None:
    selected, leftover, broken = FakeBackEnd(), FakeBackEnd(), FakeBackEnd(fails=True)
    rows = [
        FakeRow("new", selected, leftover=FakeBackEnd(fails=True)),
        FakeRow("old", FakeBackEnd(), leftover=leftover),
        FakeRow("older", FakeBackEnd(), leftover=broken),
    ]
    limits = Enforcement("new", node.context, rows=rows)
    await limits.start(limits.select(READY))
    assert "leftover back end not started mode=older error=no room" in caplog.text
    limits.forget_pod("uid")
    limits.stop()
    assert (selected.log, leftover.log) == (["start", "forget uid", "stop"],) * 2
    assert broken.log == ["start", "stop"]


async def test_a_problem_is_reported_and_changed_pods_are_reconciled_at_once(
    node: LimitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcement, "RECONCILE_SECONDS", 3600)
    back_end, problems = FakeBackEnd(), list[str]()
    back_end.problem = "detached"
    limits = Enforcement("fake", node.context, rows=[FakeRow("fake", back_end)])
    running = asyncio.create_task(limits.run(problems.append))
    try:
        await limits.start(limits.select(READY))
        async with asyncio.timeout(10):
            await back_end.reconciled.wait()
            back_end.reconciled.clear()
            back_end.problem = ""
            limits.notify_pods_changed()
            await back_end.reconciled.wait()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert problems == ["detached", ""]


async def test_a_failed_start_is_retried_without_restarting_what_runs(
    node: LimitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other: the back end, the hook's socket, what an earlier agent left."""
    monkeypatch.setattr(enforcement_starter, "BACKOFF", Backoff(0.0, 0.0))
    back_end, leftover, problems = FakeBackEnd(fails=True), FakeBackEnd(fails=True), list[str]()
    limits = Enforcement(
        "fake", node.context, rows=[FakeRow("fake", back_end), FakeRow("older", FakeBackEnd(), leftover)]
    )
    socket = node.context.paths.hook_socket
    (socket / "obstacle").mkdir(parents=True)

    def repair(problem: str) -> None:
        problems.append(problem)
        if len(problems) == 2:
            back_end.fails = False
        if len(problems) == 4:
            shutil.rmtree(socket)
        leftover.fails = len(problems) < 6

    hooks = HookServer(socket, _refuse)
    starter = enforcement_starter.EnforcementStarter(
        limits, hooks, node.context, extend_capabilities=lambda found: found, on_attempted=repair
    )
    await starter.start_enforcement()
    async with asyncio.timeout(10):
        await starter.run()
    await hooks.stop()
    assert [problem[:18] for problem in problems] == ["enforcement: no ro"] * 2 + ["enforcement: [Errn"] * 2 + [""] * 3
    assert back_end.log == ["start", "stop", "start", "stop", "start"]
    assert leftover.log == ["start", "stop"] * 4 + ["start"]


async def _refuse(_: HookQuestion) -> str:
    raise LimitError("no container starts here")


async def test_a_reconcile_that_fails_is_a_problem_until_one_succeeds(
    node: LimitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any error it is tried again, and the agent keeps running."""
    monkeypatch.setattr(enforcement, "RECONCILE_SECONDS", 0.01)
    back_end, problems = FakeBackEnd(), asyncio.Queue[str]()
    monkeypatch.setattr(back_end, "reconcile", _fail)
    limits = Enforcement("fake", node.context, rows=[FakeRow("fake", back_end)])
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(limits.run(problems.put_nowait))
        await limits.start(limits.select(READY))
        assert "RecursionError('too deep')" in await problems.get()
        monkeypatch.undo()
        while await problems.get():
            pass
        running.cancel()


async def _fail() -> str:
    raise RecursionError("too deep")
