"""Which mode a whole agent takes, where it shows it, and what makes it check again."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.agent.agent_harness import NODE, agent_harness
from tests.agent.cdi.injected_edits import cards_of, list_specs, resolve
from tests.agent.pod_lifecycle import put_bound_pod, run_pod, start_container, start_refused
from tests.fakes.kubelet.scripted_plugin import MEMORY
from vrampack.agent.admission import injection
from vrampack.agent.cdi import injection_choice
from vrampack.agent.cdi.runtime_probe import OLD_PROCESS_HINT, SWITCH_HINT


async def test_injection_mode_is_published_on_the_node_in_an_event_and_in_metrics() -> None:
    async with agent_harness(starts=False) as world:
        await world.add_runtime()
        await world.start_agent()
        await world.wait_until(lambda: world.read_annotation() is not None)
        assert json.loads(world.read_annotation() or "")["injection"] == "cdi"
        await world.wait_until(
            lambda: world.api.get("nodes", NODE)["metadata"]["labels"].get("vrampack.dev/injection") == "cdi"
        )
        assert world.read_metric("vrampack_agent_injection_info", mode="cdi") == 1
        await world.wait_until(
            lambda: (
                ("Normal", "containers get their cards by cdi: containerd 2.1 reads specs")
                in [(event["type"], event["message"]) for event in world.api.list_events()]
            )
        )
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "an older runtime": ({"version": "containerd://1.6.20"}, "containerd 1.6 takes no CDI devices"),
    "a runtime with CDI off": (
        {"version": "containerd://1.7.27", "has_cdi": False},
        f"containerd 1.7 does not read specs: {SWITCH_HINT}",
    ),
    "a newer runtime with CDI off": (
        {"version": "containerd://2.1.3", "has_cdi": False},
        f"containerd 2.1 does not read specs: {OLD_PROCESS_HINT}",
    ),
}


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(("runtime", "reason"), UNFIT.values(), ids=UNFIT)
async def test_exact_is_chosen_when_the_runtime_cannot_use_cdi(runtime: dict[str, Any], reason: str) -> None:
    async with agent_harness(starts=False) as world:
        await world.add_runtime(**runtime)
        await world.start_agent()
        await world.wait_until(lambda: world.read_annotation() is not None)
        assert json.loads(world.read_annotation() or "")["injection"] == "exact"
        assert f"injection chosen mode=exact reason={reason!r}"[:-1] in world.log_text
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")
        assert (await run_pod(world, put_bound_pod(world, "p"))).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(("runtime", "reason"), UNFIT.values(), ids=UNFIT)
async def test_agent_is_not_ready_when_the_configured_injection_mode_cannot_work(
    runtime: dict[str, Any], reason: str
) -> None:
    async with agent_harness(starts=False, injection="cdi") as world:
        await world.add_runtime(**runtime)
        await world.launch_agent()
        await world.wait_until(lambda: reason in world.agent.find_unready_reason())
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})


async def test_unwritable_spec_folder_makes_the_agent_unready_in_cdi_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The folder is checked again, and the node offers its cards once it is writable."""
    monkeypatch.setattr(injection, "FAULT_REVIEW_SECONDS", 0.1)
    async with agent_harness(starts=False, injection="cdi") as world:
        await world.add_runtime()
        world.cdi_folder.rename(world.folder / "away")
        await world.launch_agent()
        await world.wait_until(lambda: "no spec can be written into" in world.agent.find_unready_reason())
        (world.folder / "away").rename(world.cdi_folder)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})


async def test_exact_is_chosen_until_nvidias_specs_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is checked again: the GPU Operator may write them later."""
    monkeypatch.setattr(injection, "REVIEW_SECONDS", 0.1)
    async with agent_harness(starts=False) as world:
        await world.add_runtime()
        spec = world.cdi_folder / "management.nvidia.com-gpu.json"
        kept = spec.rename(world.folder / "kept")
        await world.start_agent()
        await world.wait_until(lambda: "mode=exact reason='no CDI spec of NVIDIA's" in world.log_text.replace('"', "'"))
        kept.rename(spec)
        await world.wait_until(lambda: json.loads(world.read_annotation() or "{}").get("injection") == "cdi")


async def test_node_in_cdi_mode_waits_for_specs_that_appear_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reboot. A container that was allocated by `exact` meanwhile could not start: nothing wires its environment."""
    monkeypatch.setattr(injection, "FAULT_REVIEW_SECONDS", 0.1)
    async with agent_harness(starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        label = "vrampack.dev/injection"
        await world.wait_until(lambda: world.api.get("nodes", NODE)["metadata"]["labels"].get(label) == "cdi")
        await world.kill_agent()
        spec = world.cdi_folder / "management.nvidia.com-gpu.json"
        kept = spec.rename(world.folder / "kept")
        await world.launch_agent()
        await world.wait_until(lambda: world.log_text.count("injection chosen") == 2)
        assert "no CDI spec of NVIDIA's" in world.agent.find_unready_reason()
        assert json.loads(world.read_annotation() or "{}").get("injection") == "cdi"
        kept.rename(spec)
        await world.kubelet.registered(MEMORY, times=2)
        started = await run_pod(world, put_bound_pod(world, "p", has_references=False))
        assert cards_of(await resolve(runtime, started)) == ["/dev/nvidia0"]


@pytest.mark.usefixtures("short_silence")
async def test_runtime_upgrade_switches_the_mode_to_cdi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "REVIEW_SECONDS", 0.1)
    async with agent_harness(starts=False) as world:
        older = await world.add_runtime("containerd://1.7.27", has_cdi=False)
        await world.start_agent()
        await world.wait_until(lambda: json.loads(world.read_annotation() or "{}").get("injection") == "exact")
        await older.close()
        (world.node_proc / str(older.pid)).unlink()
        await world.add_runtime("containerd://2.1.3")
        await world.wait_until(lambda: json.loads(world.read_annotation() or "{}").get("injection") == "cdi")


@pytest.mark.usefixtures("short_silence")
async def test_starts_and_offers_stop_when_the_runtime_stops_reading_specs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a package upgrade that drops `enable_cdi`: it would make containers without their cards."""
    monkeypatch.setattr(injection, "FAULT_REVIEW_SECONDS", 0.1)
    monkeypatch.setattr(injection_choice, "FAILING_SECONDS", 0.5)
    async with agent_harness(starts=False) as world:
        reading = await world.add_runtime("containerd://1.7.27")
        await world.start_agent()
        await run_pod(world, put_bound_pod(world, "before", has_references=False))
        pod = put_bound_pod(world, "p", has_references=False)
        assert await world.kubelet.admit(pod)
        await reading.close()
        (world.node_proc / str(reading.pid)).unlink()
        silent = await world.add_runtime("containerd://1.7.27", has_cdi=False)
        assert "has not read the CDI spec" in str(await world.kubelet.try_start(pod, "main"))
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        assert SWITCH_HINT in world.agent.find_unready_reason()
        await silent.close()
        (world.node_proc / str(silent.pid)).unlink()
        again = await world.add_runtime("containerd://1.7.27")
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert cards_of(await resolve(again, await world.kubelet.start(pod, "main"))) == ["/dev/nvidia0"]


async def test_agent_waits_for_a_spec_folder_that_never_existed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count as removed, which would end the agent again and again."""
    monkeypatch.setattr(injection, "FOLDER_SECONDS", 0.02)
    async with agent_harness(starts=False, injection="cdi") as world:
        await world.add_runtime()
        world.settings["cdi"] = {"folder": world.folder / "elsewhere"}
        await world.launch_agent()
        await world.wait_until(lambda: "no spec can be written into" in world.agent.find_unready_reason())
        assert not await world.has_ended(seconds=0.2)


async def test_specs_of_an_earlier_agent_are_deleted_at_once() -> None:
    """Before any card is found: kubelet could start a container with one without asking."""
    async with agent_harness(starts=False) as world:
        await world.add_runtime()
        left = world.cdi_folder / f"vrampack-{'0f' * 16}.json"
        left.write_text("{}")
        world.driver.present = ()
        await world.launch_agent()
        await world.wait_until(lambda: list_specs(world) == [])


@pytest.mark.usefixtures("short_silence")
async def test_a_stalled_runtime_takes_no_card_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that reaches kubelet while its card is unhealthy fails for good; one whose start is refused is tried again."""
    monkeypatch.setattr(injection, "FAULT_REVIEW_SECONDS", 0.01)
    async with agent_harness(16130, 16130, starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        stalled, other = (
            put_bound_pod(world, name, cards=[card], has_references=False) for card, name in enumerate("ab")
        )
        os.kill(runtime.pid, signal.SIGSTOP)
        for _ in range(injection_choice.FAILING_CHECKS + 2):
            assert "has not read the CDI spec" in await start_refused(world, stalled)
        assert "injection in doubt mode=cdi reason='containerd 2.1 does not read specs" in world.log_text
        assert world.read_card_health() == {"GPU-0": True, "GPU-1": True}
        assert await world.kubelet.admit(other), other.message
        os.kill(runtime.pid, signal.SIGCONT)
        for pod in (stalled, other):
            await start_container(world, pod)


@pytest.mark.usefixtures("short_silence")
async def test_a_runtime_that_is_away_changes_neither_the_mode_nor_the_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It restarts. An agent that starts meanwhile cannot ask it, and offers nothing until it can."""
    monkeypatch.setattr(injection, "FAULT_REVIEW_SECONDS", 0.05)
    monkeypatch.setattr(injection_choice, "FAILING_CHECKS", 1)
    monkeypatch.setattr(injection_choice, "FAILING_SECONDS", 0.0)
    async with agent_harness(starts=False) as world:
        former = await world.add_runtime()
        await world.start_agent()
        label = "vrampack.dev/injection"
        await world.wait_until(lambda: world.api.get("nodes", NODE)["metadata"]["labels"].get(label) == "cdi")
        (world.node_proc / str(former.pid)).unlink()
        await former.close()
        pod = put_bound_pod(world, "p", has_references=False)
        assert "has not read the CDI spec" in await start_refused(world, pod)
        away = "no process containerd is seen on this node"
        await world.wait_until(lambda: f"injection in doubt mode=cdi reason='{away}'" in world.log_text)
        assert world.agent.find_unready_reason() == ""

        await world.kill_agent()
        await world.launch_agent()
        await world.wait_until(lambda: f"injection: cdi: {away}" in world.agent.find_unready_reason())
        runtime = await world.add_runtime()
        await world.kubelet.registered(MEMORY, times=2)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert cards_of(await resolve(runtime, await start_container(world, pod))) == ["/dev/nvidia0"]
