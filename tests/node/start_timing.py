"""How long starts took, by the agent's own page of metrics: one by one, or many as the histograms have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.node.metrics import read_samples
from tests.node.node import LiveNode

WHOLE = "vrampack_agent_start_duration_seconds"
QUANTILES = (0.5, 0.99)
AWAIT = "vrampack_agent_cdi_read_duration_seconds"
WAITS = "vrampack_agent_start_wait_seconds_total"


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Of all starts since the agent started: sums in seconds, counts by upper bound."""

    starts: float
    whole_seconds: float
    waits: dict[str, float]
    """Seconds waited, by what was waited for: kubelet, api_server, runtime."""
    whole: dict[float, float]
    awaits: dict[float, float]

    @classmethod
    def read(cls, node: LiveNode) -> StartTimes:
        samples = read_samples(node, "vrampack-agent")
        values = {each.name: each.value for each in samples if not each.labels}
        bounds = {
            name: {float(each.labels["le"]): each.value for each in samples if each.name == f"{name}_bucket"}
            for name in (WHOLE, AWAIT)
        }
        waits = {each.labels["on"]: each.value for each in samples if each.name == WAITS}
        return cls(values[f"{WHOLE}_count"], values[f"{WHOLE}_sum"], waits, bounds[WHOLE], bounds[AWAIT])

    @property
    def own_seconds(self) -> float:
        """What the agent did itself, without what others took to answer."""
        return self.whole_seconds - sum(self.waits.values())

    def since(self, before: StartTimes) -> StartTimes:
        """Of the starts between the two."""
        return StartTimes(
            self.starts - before.starts,
            self.whole_seconds - before.whole_seconds,
            {on: seconds - before.waits.get(on, 0) for on, seconds in self.waits.items()},
            {bound: count - before.whole[bound] for bound, count in self.whole.items()},
            {bound: count - before.awaits[bound] for bound, count in self.awaits.items()},
        )


def estimate_quantile(counts: dict[float, float], quantile: float) -> float:
    """Seconds, straight between the two bounds around it, as Prometheus' histogram_quantile; 0 where nothing is counted."""
    lower = below = 0.0
    wanted = quantile * max(counts.values(), default=0)
    for bound, count in sorted(counts.items()):
        if count >= wanted and count > below:
            return lower + (bound - lower) * (wanted - below) / (count - below) if bound < float("inf") else lower
        lower, below = bound, count
    return 0


def pick_quantile(seconds: Sequence[float], quantile: float) -> float:
    """Of values that are known one by one."""
    return sorted(seconds)[min(int(quantile * len(seconds)), len(seconds) - 1)]


def read_memory_mb(node: LiveNode) -> float:
    """What the agent's process has resident, in 10^6 bytes."""
    (pid,) = node.agent_pids()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024 / 1e6


def describe_alone(taken: Sequence[StartTimes]) -> str:
    """A line of starts that are known one by one."""
    parts = {"own work": [each.own_seconds for each in taken]}
    parts |= {on: [each.waits[on] for each in taken] for on in ("kubelet", "api_server", "runtime")}
    shown = [
        f"{name} {_show_pair(*(pick_quantile(each, quantile) for quantile in QUANTILES))}"
        for name, each in parts.items()
    ]
    return f"{len(taken)} starts alone: {'; '.join(shown)}\n"


def describe_crowd(what: str, taken: StartTimes) -> str:
    """A line of starts that went on together."""
    shown = [
        _show_pair(*(estimate_quantile(counts, quantile) for quantile in QUANTILES))
        for counts in (taken.whole, taken.awaits)
    ]
    return f"{taken.starts:.0f} starts, {what}: PreStart {shown[0]}, of it await {shown[1]}\n"


def _show_pair(median: float, late: float) -> str:
    return f"p50 {median * 1000:.1f} p99 {late * 1000:.1f} ms"
