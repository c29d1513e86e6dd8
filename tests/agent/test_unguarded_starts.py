"""Which containers count as started past the hook, by two clocks of which one may be set."""

from __future__ import annotations

from vrampack.agent.admission.unguarded_starts import UnguardedStarts
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.metrics import AgentMetrics
from vrampack.cards.pod import Pod


class Events:
    def __init__(self) -> None:
        self.pods: list[str] = []

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None:  # noqa: ARG002 - as the sink has it
        self.pods.append(pod.name)


class Clocks:
    def __init__(self) -> None:
        self.wall = 10_000.0
        self.monotonic = 500.0

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def a_pod(name: str, started_at: float) -> LocalPod:
    return LocalPod(
        Pod(f"uid-{name}", "ml", name),
        {},
        {"main": f"containerd://{name}"},
        is_static=False,
        is_controlled=True,
        started_at={"main": started_at},
    )


def test_a_clock_that_is_set_back_hides_no_start_and_accuses_no_earlier_one() -> None:
    clocks, events = Clocks(), Events()
    starts = UnguardedStarts(
        events,
        AgentMetrics("test", node="n"),
        needs_hook=lambda: True,
        now=lambda: clocks.wall,
        clock=lambda: clocks.monotonic,
    )
    pods = [a_pod("earlier", 9_000.0)]
    starts.check_containers(pods, lambda *_: {"GPU-0": 1})
    clocks.wall -= 3_600
    clocks.pass_seconds(1_800)
    pods.append(a_pod("past", clocks.wall - 900))  # 7300: before the 10000 at which the agent began to listen
    starts.check_containers(pods, lambda *_: {"GPU-0": 1})
    assert [each.container_id for each in starts.list_containers()] == ["past"]
    assert events.pods == ["past"]
