"""The real kube-scheduler still decides as tests/simulator/decisions shows the embedded one to."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.decision_recorder import record_decisions
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import ManagedProcess
from tests.support.scheduler_decisions.comparison import find_disagreements


async def test_embedded_and_real_scheduler_decide_alike(
    cluster: ControlPlane, scheduler: Callable[..., ManagedProcess]
) -> None:
    """120 nodes, of which 100 end the search; one thread, so that it is known which nodes it looks at."""
    recording = await record_decisions(cluster, scheduler, node_count=120, pod_count=200, parallelism=1)
    assert len(recording.decisions) == 200
    assert list(find_disagreements(recording)) == []
