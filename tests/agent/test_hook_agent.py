"""A whole agent and the createRuntime hook: when it listens for the hook, and what people see of the answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.pod_lifecycle import put_bound_pod, remove_pod, report_status, start_container
from tests.fakes.kubelet.pods import KubeletPod
from vrampack.agent.admission import unguarded_starts
from vrampack.agent.limits import enforcement_starter
from vrampack.agent.nvml.errors import DriverError
from vrampack.backoff import Backoff
from vrampack.cards.well_known import NODE_REFUSED


def install_hook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docs/limits.md` has it for containerd."""
    spec = folder / "containerd.json"
    spec.write_text(json.dumps({"hooks": {"createRuntime": [{"path": "/opt/vrampack/bin/vrampack-hook"}]}}))
    monkeypatch.setattr("vrampack.agent.limits.enforcement_starter.RUNTIME_SPECS", (spec,))


async def test_an_unneeded_hook_is_still_answered() -> None:
    """A hook without an answer would stop every container of the node."""
    async with agent_harness(starts=False, enforcement="none") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        reader, writer = await asyncio.open_unix_connection(world.hook_socket)
        writer.write(b"no question\n")
        assert json.loads(await reader.readline())["ok"] is False
        writer.close()
        assert world.read_metric("vrampack_agent_hook_answers_total", result="refused") == 1


async def test_agent_does_not_listen_without_an_installed_hook() -> None:
    async with agent_harness(enforcement="none") as world:
        assert not world.hook_socket.parent.exists()
        assert world.read_metric("vrampack_agent_hook_answers_total", result="refused") == 0


async def test_a_node_that_needs_the_hook_offers_nothing_without_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        await world.launch_agent()
        await world.wait_until(lambda: "enforcement: [Errno 2]" in world.agent.components.advertisement.current.problem)


async def test_a_blocked_hook_socket_keeps_the_node_unready_until_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is shown meanwhile; the back end that runs already is not started twice."""
    install_hook(tmp_path, monkeypatch)
    monkeypatch.setattr(enforcement_starter, "BACKOFF", Backoff(0.01, 0.02))
    async with agent_harness(starts=False, enforcement="native") as world:
        (world.hook_socket / "obstacle").mkdir(parents=True)
        await world.launch_agent()
        await world.wait_until(lambda: "enforcement: [Errno " in world.agent.components.advertisement.current.problem)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        (world.hook_socket / "obstacle").rmdir()
        world.hook_socket.rmdir()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert world.hook_socket.is_socket()
        assert world.log_text.count("back end selected mode=native") == 1
        _, writer = await asyncio.open_unix_connection(world.hook_socket)
        writer.close()


async def test_agent_listens_for_the_hook_when_native_limits_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        assert world.hook_socket.is_socket()
        assert "by the createRuntime hook" in world.log_text


async def test_a_container_that_the_hook_may_not_start_is_told_and_named_until_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native", refused={"after_seconds": 0.05}) as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        pod = put_bound_pod(world, "p", uid="00000000-0000-4000-8000-000000000000")
        assert await world.kubelet.admit(pod)
        await start_container(world, pod)
        world.driver.limit_error = DriverError("below present use")
        assert not await ask_for(world, pod, "a" * 64)
        assert list(world.agent.components.rejected_pods._rejected) == [pod.uid]
        await world.wait_until(
            lambda: f'"{pod.uid}":{{"reason":"limit"}}' in (world.read_annotation(NODE_REFUSED) or "")
        )
        told = [event["message"] for event in world.api.list_events() if event["reason"] == "GPUMemoryStartRefused"]
        assert [text for text in told if "container main" in text and "below present use" in text] == told

        world.driver.limit_error = None
        assert await ask_for(world, pod, "a" * 64)
        await world.wait_until(lambda: world.read_annotation(NODE_REFUSED) is None)


UNGUARDED = "vrampack_agent_unguarded_containers"


async def ask_for(world: AgentHarness, pod: KubeletPod, container_id: str, *, container: str = "main") -> bool:
    """As the hook does before the container's first process."""
    folder = world.make_cgroup(pod)
    question = {
        "v": 1,
        "pid": 1,
        "id": container_id,
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "container": container,
        "hierarchy": "unified",
        "cgroup": f"/{folder.relative_to(world.cgroups)}",
    }
    reader, writer = await asyncio.open_unix_connection(world.hook_socket)
    writer.write(json.dumps(question).encode() + b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    return bool(answer["ok"])


async def test_a_container_that_its_pods_record_does_not_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime that lets a pod annotation name the container would otherwise start it without its limit."""
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        pod = put_bound_pod(world, "p", uid="00000000-0000-4000-8000-000000000000")
        assert await world.kubelet.admit(pod)
        await start_container(world, pod)
        assert not await ask_for(world, pod, "a" * 64, container="other")
        assert await ask_for(world, pod, "a" * 64)


async def test_container_that_bypassed_the_hook_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pods start; the runtime calls the hook for one of them, and one waits for its next start by now."""
    install_hook(tmp_path, monkeypatch)
    async with agent_harness(starts=False, enforcement="native") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        uids = [f"0000000{place}-0000-4000-8000-000000000000" for place in range(3)]
        named = zip(("asked", "past", "waiting"), uids, strict=True)
        asked, past, waiting = pods = [put_bound_pod(world, name, uid=uid) for name, uid in named]
        for pod in pods:
            assert await world.kubelet.admit(pod)
            await start_container(world, pod)
            pod.states["main"].started_at = "" if pod is waiting else "2999-01-01T00:00:00Z"
        assert await ask_for(world, asked, asked.states["main"].container_id.rpartition("/")[2])
        for pod in pods:
            report_status(world, pod)
        watched = world.agent.components.pod_cache
        await world.wait_until(lambda: all(each.container_ids for each in watched.list_pods()))
        world.agent.components.unguarded_starts.check_containers(
            watched.list_pods(), world.agent.components.workload.get_limits_mib
        )
        assert world.read_metric(UNGUARDED) == 1
        await world.wait_until(lambda: bool(list_unguarded_starts(world)))
        assert [name for name, _ in list_unguarded_starts(world)] == ["past"]
        assert (
            "container main runs without its limit: the default runtime handler did not"
            in list_unguarded_starts(world)[0][1]
        )
        (shown,) = world.agent._build_limits_status().unguarded
        assert (shown.namespace, shown.pod, shown.uid, shown.container) == ("default", "past", uids[1], "main")

        remove_pod(world, past)
        await world.wait_until(lambda: world.read_metric(UNGUARDED) == 0)


async def test_containers_from_before_this_agent_are_not_reported_as_bypassing_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kubelet's clock: one container was started a second before this agent looked, one well after."""
    install_hook(tmp_path, monkeypatch)
    monkeypatch.setattr(unguarded_starts, "PREDECESSOR_SECONDS", -3600.0)
    async with agent_harness(starts=False, enforcement="native") as world:
        world.hook_socket.parent.mkdir()
        await world.start_agent()
        for name, started in (("before", "2020-01-01T00:00:00Z"), ("after", "2999-01-01T00:00:00Z")):
            pod = put_bound_pod(world, name)
            assert await world.kubelet.admit(pod)
            await start_container(world, pod)
            pod.states["main"].started_at = started
            report_status(world, pod)
        await world.wait_until(lambda: bool(list_unguarded_starts(world)))
        assert [name for name, _ in list_unguarded_starts(world)] == ["after"]


async def test_unchecked_hook_answers_are_bounded() -> None:
    """With a back end that needs no hook, the hook is still answered for as long as the agent runs."""
    async with agent_harness(enforcement="none") as world:
        starts = world.agent.components.unguarded_starts
        for each in range(unguarded_starts.MAX_ANSWERS + 5):
            starts.record_answer(str(each))
        assert len(starts._allowed_ids) == unguarded_starts.MAX_ANSWERS


def list_unguarded_starts(world: AgentHarness) -> list[tuple[str, str]]:
    """The pod and the text of each event about such a start."""
    return [
        (event["involvedObject"]["name"], event["message"])
        for event in world.api.list_events()
        if event["reason"] == "GPUMemoryUnguardedStart"
    ]
