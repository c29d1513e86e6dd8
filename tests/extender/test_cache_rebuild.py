"""After a fault inside a cache: one call is answered with an error, the caches are built again, and the service goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from extender.metrics import ExtenderMetrics
from extender.scheduling import cache_rebuild
from extender.scheduling.cache_rebuild import MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS, CacheRebuild
from extender.state import nominator
from extender.wire.codec import VerbResponse
from policies.engine import hardware_index, node_states
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import node_facts
from vrampack.cards import shape

NAMES = [f"n{at}" for at in range(6)]
SIZES = (1, 4, 6, 15)
SEAMS = [
    (shape, "Shape", 6),
    (hardware_index, "_get_hardware", 12),
    (shape, "FitClass", 2),
    (node_states, "NodeState", 4),
    (node_states, "insort", 6),
    (nominator, "evaluate_node", 2),
]
"""What the caches call while they follow the ledger, and how often: a fault in one leaves a change half applied."""


class FaultyCall:
    """Calls the original; raises at the call of this number, once."""

    def __init__(self, original: Callable[..., Any], at: int) -> None:
        self._original = original
        self._left = at
        self.is_raised = False

    def __call__(self, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - those of the original
        self._left -= 1
        if self._left == 0:
            self.is_raised = True
            raise ArithmeticError("a fault of ours")
        return self._original(*arguments, **more)


async def build_changed_cluster() -> SchedulerHarness:
    """The caches are full of the cluster as it was before."""
    desk = SchedulerHarness({name: [15, 15] for name in NAMES})
    await call_all(desk)
    for at, name in enumerate(NAMES):
        desk.add_bound_pod(f"on-{name}", name, 2 + 3 * at % 12)
    desk.ledger.remove_node("n1")
    desk.put_node(node_facts("n6", 15, 4))
    for name in ("n2", "n3"):
        desk.ledger.update_pod(replace(desk.add_pending_pod(f"for-{name}", 6, priority=10), nominated_node=name))
    return desk


async def call_all(desk: SchedulerHarness) -> list[bytes]:
    """The answers of filter and prioritize to pods of all sizes."""
    desk.seconds += 60  # nothing is reserved any more
    bodies = []
    for units in SIZES:
        for verb in (desk.parts.timed_verbs.filter, desk.parts.timed_verbs.prioritize):
            answer = verb.answer_call(desk.encode_call(f"asks-{units}-at-{desk.seconds:.0f}", units, [*NAMES, "n6"]))
            bodies.append((answer if isinstance(answer, VerbResponse) else await answer).body)
    return bodies


def count_faults(metrics: ExtenderMetrics) -> float:
    (family,) = metrics.internal_errors.collect()
    return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))


@pytest.mark.parametrize(("module", "name", "calls"), SEAMS, ids=[name for _, name, _ in SEAMS])
async def test_no_fault_in_a_cache_outlives_its_call(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, calls: int
) -> None:
    """Wherever in the work of following the ledger it happens."""
    expected = await call_all(await build_changed_cluster())
    for at in range(1, calls + 1):
        desk = await build_changed_cluster()
        with monkeypatch.context() as patch:
            faulty = FaultyCall(getattr(module, name), at)
            patch.setattr(module, name, faulty)
            answers = await call_all(desk)
        assert faulty.is_raised, "this seam is not called as often any more: lower its number"
        assert sum(b"internal error of vrampack" in body for body in answers) == 1
        assert count_faults(desk.metrics) == 1
        assert await call_all(desk) == expected


async def test_a_task_that_fails_begins_again_and_caches_are_not_rebuilt_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache_rebuild, "RESTART_SECONDS", 0.0)
    now = [0.0]
    metrics = ExtenderMetrics("test")
    rebuild = CacheRebuild(metrics, lambda: now[0])
    rebuilt_at: list[float] = []

    class Noted:
        def forget_all(self) -> None:
            rebuilt_at.append(now[0])

    rebuild.add_cache(Noted())
    faults = 200

    async def fail() -> None:
        if count_faults(metrics) < faults:
            now[0] += MIN_PAUSE_SECONDS / 2
            raise ArithmeticError("a fault of ours")

    await rebuild.keep_running("task", fail)
    assert count_faults(metrics) == faults
    assert rebuilt_at == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5]
    now[0] += 3 * MAX_PAUSE_SECONDS
    rebuild.on_fault("filter")
    rebuild.on_fault("filter")
    assert len(rebuilt_at) == 8
