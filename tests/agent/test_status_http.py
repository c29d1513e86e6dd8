"""The metrics page: how much of which card each container uses, with labels that join with dcgm-exporter's."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.fakes.kubelet.pods import KubeletPod
from vrampack.agent.admission.fence import REJECTION_REASONS
from vrampack.agent.limits.cgroups import CgroupOwner
from vrampack.agent.limits.contract import ContainerUsage
from vrampack.agent.nvml.driver import GpuUsage as CardUsage
from vrampack.agent.nvml.driver import GpuUtilization
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.status import usage_collector

MIB = 1024 * 1024
LIMIT = "vrampack_agent_container_memory_limit_bytes"
USED = "vrampack_agent_container_memory_used_bytes"
PEAK = "vrampack_agent_container_memory_peak_bytes"
BUSY = "vrampack_agent_container_sm_utilization_ratio"
CARD_BUSY = "vrampack_agent_card_sm_utilization_ratio"
LABELS = {"node": NODE, "UUID": "GPU-0", "gpu": "0", "namespace": "default", "pod": "p", "container": "main"}


def series(world: AgentHarness, name: str) -> list[tuple[dict[str, str], float]]:
    """Samples of the page, as a scraper gets it."""
    families = text_string_to_metric_families(world.metrics.render_page().decode())
    return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]


def read_held_units(world: AgentHarness) -> float:
    return world.read_metric("vrampack_agent_card_held_units", node=NODE, UUID="GPU-0", gpu="0")


async def a_running_pod(world: AgentHarness) -> KubeletPod:
    pod = world.add_bound_pod("p", units=4)
    assert await world.kubelet.admit(pod)
    await world.kubelet.start(pod, "main")
    world.api.patch("pods", "p", {"status": pod.manifest()["status"]}, is_status=True)
    await world.wait_until(lambda: bool(series(world, LIMIT)))
    return pod


async def test_limit_and_usage_of_a_container_are_both_shown() -> None:
    async with agent_harness() as world:
        pod = await a_running_pod(world)
        await world.agent.components.usage_collector.refresh_usage()
        assert series(world, LIMIT) == [(LABELS, 4301 * MIB)]  # 16130 * 4 / 15
        assert series(world, USED) == [(LABELS, 0)]
        container_id = pod.states["main"].container_id.rpartition("/")[2]
        world.agent.components.usage_collector._container_usage = (
            ContainerUsage(pod.uid, container_id, "GPU-0", 7 * MIB),
            ContainerUsage(pod.uid, container_id, "GPU-0", 5 * MIB),  # two processes of one container
            ContainerUsage("somebody", "else", "GPU-0", 3 * MIB),
        )
        assert series(world, USED) == [(LABELS, 12 * MIB)]
        assert series(world, LIMIT) == [(LABELS, 4301 * MIB)]


async def test_limits_unheld_is_set_only_when_watch_was_not_configured() -> None:
    async with agent_harness(starts=False) as world:
        world.driver.version = "580.95.05"
        await world.start_agent()
        await world.wait_until(lambda: world.read_metric("vrampack_agent_enforcement_info", mode="watch") == 1)
        assert world.read_metric("vrampack_agent_limits_unheld") == 1
        await world.stop_agent()
        world.settings["enforcement"] = "watch"
        await world.start_agent()
        await world.wait_until(lambda: world.read_metric("vrampack_agent_enforcement_info", mode="watch") == 1)
        assert world.read_metric("vrampack_agent_limits_unheld") == 0


async def test_every_start_result_has_a_series_from_the_beginning() -> None:
    """A counter that first appears with a refusal shows no increase."""
    async with agent_harness() as world:
        results = {labels["result"] for labels, _ in series(world, "vrampack_agent_starts_total")}
        assert results == {"ok", "older", *REJECTION_REASONS}


async def test_series_vanish_with_their_pod() -> None:
    async with agent_harness() as world:
        pod = await a_running_pod(world)
        assert read_held_units(world) == 4
        world.kubelet.remove(pod)
        world.api.delete("pods", "p", grace_seconds=0)
        await world.wait_until(lambda: not series(world, LIMIT) and read_held_units(world) == 0)
        assert series(world, USED) == []


async def test_card_usage_is_absent_while_the_driver_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[CardUsage] = [CardUsage("GPU-0", 9 * MIB, 16130 * MIB)]

    async def usage() -> tuple[CardUsage, ...]:
        if not answers:
            raise DriverError("Unknown Error", 999)
        return tuple(answers)

    async with agent_harness() as world:
        await a_running_pod(world)
        monkeypatch.setattr(world.driver, "read_usage", usage)
        await world.agent.components.usage_collector.refresh_usage()
        card = {"node": NODE, "UUID": "GPU-0", "gpu": "0"}
        assert series(world, "vrampack_agent_card_memory_used_bytes") == [(card, 9 * MIB)]
        assert series(world, USED) == [(LABELS, 0)]
        answers.clear()
        await world.agent.components.usage_collector.refresh_usage()
        assert series(world, "vrampack_agent_card_memory_used_bytes") == []
        assert series(world, USED) == []  # not measured is not 0
        assert series(world, LIMIT) == [(LABELS, 4301 * MIB)]
        assert series(world, "vrampack_agent_card_memory_bytes") == [(card, 16130 * MIB)]


async def test_a_failed_measurement_does_not_stop_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any error the agent keeps running, and shows no use until the next measurement."""
    monkeypatch.setattr(usage_collector, "MEASURE_SECONDS", 0.01)
    failures: list[Exception] = [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a cgroup's name"), DriverError("hung")]

    async def usage() -> tuple[CardUsage, ...]:
        if failures:
            raise failures.pop()
        return (CardUsage("GPU-0", 9 * MIB, 16130 * MIB),)

    async with agent_harness(starts=False) as world:
        monkeypatch.setattr(world.driver, "read_usage", usage)
        await world.start_agent()
        await world.wait_until(lambda: bool(series(world, "vrampack_agent_card_memory_used_bytes")))
        assert world.is_running


async def test_without_measurements_no_use_is_reported() -> None:
    async with agent_harness(enforcement="none") as world:
        await a_running_pod(world)
        await world.agent.components.usage_collector.refresh_usage()
        assert series(world, USED) == []
        assert series(world, LIMIT) == [(LABELS, 4301 * MIB)]


async def test_actual_usage_is_shown_by_card_and_container() -> None:
    """Two processes of one container are 45 % of 100; a process of no pod counts for the card alone. A peak stays when use falls."""
    async with agent_harness() as world:
        pod = await a_running_pod(world)
        collector = world.agent.components.usage_collector
        owner = CgroupOwner(pod.uid, pod.states["main"].container_id.rpartition("/")[2])
        world.owners |= {7: owner, 8: owner}
        world.driver.utilization = (GpuUtilization("GPU-0", {7: 40, 8: 5, 9: 30}),)
        await collector.refresh_usage()
        assert (series(world, BUSY), [value for _, value in series(world, CARD_BUSY)]) == ([(LABELS, 0.45)], [0.75])
        key = (pod.uid, "main", "GPU-0")
        collector._peaks.record_usage({key: 12 * MIB}, {pod.uid})
        collector._container_usage = (ContainerUsage(*owner_key(owner), "GPU-0", 5 * MIB),)
        assert (series(world, USED), series(world, PEAK)) == ([(LABELS, 5 * MIB)], [(LABELS, 12 * MIB)])
        collector._used_by_card = {"GPU-0": 300 * MIB}  # of which 295 are not the container's
        measured = collector.measure_cards()["GPU-0"]
        assert (measured.used_mib, measured.peak_mib, measured.sm_percent) == (300, 307, 75)
        world.driver.utilization = DriverError("hung")
        await collector.refresh_usage()
        assert (series(world, BUSY), series(world, CARD_BUSY)) == ([], [])  # unknown is not idle
        assert series(world, USED) != []


def owner_key(owner: CgroupOwner) -> tuple[str, str]:
    return owner.pod_uid, owner.container_id
