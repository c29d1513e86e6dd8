"""A whole agent that hands cards over by CDI: what kubelet, the runtime and the API server see of it."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.agent.agent_harness import SPECS, agent_harness
from tests.agent.cdi.injected_edits import answers_of, cards_of, env_of, list_specs, resolve
from tests.agent.pod_lifecycle import (
    put_bound_pod,
    report_status,
    restart_container,
    run_pod,
    start_refused,
)
from vrampack.agent.admission import injection

TWO_CARDS = (16130, 16130)
REQUESTED = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
"""What a tenant sets to see more of the driver."""


async def test_a_container_gets_its_card_when_it_starts() -> None:
    """No reference in its environment, no mount, no runtime class: the spec has it all, and overrides the pod's environment."""
    async with agent_harness(*TWO_CARDS, starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(
            world, "p", cards=[1], has_references=False, env=[{"name": name, "value": "all"} for name in REQUESTED]
        )
        assert await world.kubelet.admit(pod)
        answer = answers_of(world, pod)
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert list(answer.mounts) == []
        assert await runtime.resolve(answer.cdi_devices[0].name) is None
        edits = await resolve(runtime, await world.kubelet.start(pod, "main"))
        assert cards_of(edits) == ["/dev/nvidia1"]
        assert env_of(edits)["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert env_of(edits).get("NVIDIA_DRIVER_CAPABILITIES") == "compute,utility"
        assert env_of(edits)["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"  # 16130 * 4 / 15, rounded down
        assert {name: value for name, value in env_of(edits).items() if name.startswith("ALIYUN")} == {
            "ALIYUN_COM_GPU_MEM_CONTAINER": "4",
            "ALIYUN_COM_GPU_MEM_POD": "4",
            "ALIYUN_COM_GPU_MEM_DEV": "15",
            "ALIYUN_COM_GPU_MEM_IDX": "1",
        }
        assert world.read_metric("vrampack_agent_cdi_specs_total", result="read") == 1


async def test_a_container_gets_the_driver_capabilities_of_the_settings() -> None:
    async with agent_harness(starts=False, cdi={"driver_capabilities": ["compute", "video"]}) as world:
        world.settings["cdi"]["folder"] = world.cdi_folder
        runtime = await world.add_runtime()
        await world.start_agent()
        edits = await resolve(runtime, await run_pod(world, put_bound_pod(world, "p", has_references=False)))
        assert env_of(edits)["NVIDIA_DRIVER_CAPABILITIES"] == "compute,video"


async def test_spec_is_deleted_once_the_container_exists_and_rewritten_for_the_next() -> None:
    async with agent_harness(starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        started = await run_pod(world, pod)
        await world.wait_until(lambda: not list_specs(world))
        assert await runtime.resolve(started.cdi_devices[0]) is None
        again = await restart_container(world, pod)
        assert again.cdi_devices == started.cdi_devices
        assert cards_of(await resolve(runtime, again)) == ["/dev/nvidia0"]


async def test_the_spec_is_deleted_with_a_pod_whose_container_never_appeared() -> None:
    async with agent_harness(*TWO_CARDS, starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        deleted, stays = (
            put_bound_pod(world, name, cards=[card], has_references=False) for card, name in enumerate("ab")
        )
        for pod in (deleted, stays):
            assert await world.kubelet.admit(pod)
        names = [(await world.kubelet.start(pod, "main")).cdi_devices[0] for pod in (deleted, stays)]
        world.api.delete("pods", "a", grace_seconds=0)
        await world.wait_until(lambda: len(list_specs(world)) == 1)
        assert [await runtime.resolve(name) is None for name in names] == [True, False]


async def test_a_refused_start_leaves_no_spec() -> None:
    """12 of 15 units are held; the second pod was bound to the same card past the ledger, with ids of the other one."""
    async with agent_harness(*TWO_CARDS, starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        await run_pod(world, put_bound_pod(world, "a", units=12, has_references=False))
        second = put_bound_pod(world, "b", units=12, has_references=False)
        assert "was bound without the extender's ledger" in await start_refused(world, second)
        assert await runtime.resolve(answers_of(world, second).cdi_devices[0].name) is None


async def test_an_init_container_with_the_same_ids_gets_its_spec_too() -> None:
    """Kubelet does not say which of the two it starts: 4 units each, one id set, two names."""
    async with agent_harness(starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", units=4, init={"prepare": 4}, has_references=False)
        assert await world.kubelet.admit(pod)
        assert world.kubelet.device_ids(pod, "prepare") == world.kubelet.device_ids(pod, "main")
        first = await world.kubelet.start(pod, "prepare")
        assert cards_of(await resolve(runtime, first)) == ["/dev/nvidia0"]
        world.kubelet.exit(pod, "prepare")
        second = await world.kubelet.start(pod, "main")
        assert first.cdi_devices != second.cdi_devices
        assert cards_of(await resolve(runtime, second)) == ["/dev/nvidia0"]


async def test_a_pod_of_several_cards_gets_all_of_them() -> None:
    async with agent_harness(*TWO_CARDS, starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(
            world, "p", cards=[0, 1], units=8, labels={"aliyun.com/gpu-count": "2"}, has_references=False
        )
        edits = await resolve(runtime, await run_pod(world, pod))
        assert cards_of(edits) == ["/dev/nvidia0", "/dev/nvidia1"]
        assert len({json.dumps(hook) for hook in edits["hooks"]}) == len(edits["hooks"])


async def test_the_spec_mounts_the_library() -> None:
    async with agent_harness(starts=False, enforcement="preload") as world:
        world.add_library()
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        started = await run_pod(world, pod)
        assert started.mount_paths == ()
        mounts = {mount["containerPath"]: mount for mount in (await resolve(runtime, started))["mounts"]}
        assert mounts["/etc/ld.so.preload"]["hostPath"] == "/var/lib/vrampack/preload/ld.so.preload"
        assert "ro" in mounts["/var/lib/vrampack/preload"]["options"]


async def test_start_requires_nvidias_hook_in_the_spec_when_it_enforces_limits() -> None:
    """`native` by the toolkit: the GPU is in a spec with that hook when the agent starts, and later in one without it."""
    async with agent_harness(starts=False, enforcement="native") as world:
        runtime = await world.add_runtime()
        added = world.cdi_folder / "device-plugin.json"
        spec = json.loads((SPECS / "device-plugin.json").read_text())
        first = "/dev/nvidia0"
        device = next(each for each in spec["devices"] if each["containerEdits"]["deviceNodes"][0]["path"] == first)
        added.write_text(json.dumps(spec | {"devices": [device | {"name": "GPU-0"}]}))
        await world.start_agent()
        assert "by the container toolkit" in world.log_text
        pod = put_bound_pod(world, "p", has_references=False)
        edits = await resolve(runtime, await run_pod(world, pod))
        assert "apply-cuda-memory-limits" in [hook["args"][1] for hook in edits["hooks"]]
        added.unlink()
        assert "no hook for limits any more" in await start_refused(
            world, put_bound_pod(world, "q", has_references=False)
        )


async def test_spec_contains_our_hook_when_the_limit_needs_it() -> None:
    """The management spec has no hook of NVIDIA's, so ours is used."""
    hook = "/opt/vrampack/bin/vrampack-hook"
    async with agent_harness(starts=False, enforcement="native") as world:
        world.settings["cdi"] = {"folder": world.cdi_folder, "hook": hook}
        world.hook_socket.parent.mkdir()
        runtime = await world.add_runtime()
        await world.start_agent()
        assert "by the createRuntime hook" in world.log_text
        edits = await resolve(runtime, await run_pod(world, put_bound_pod(world, "p", has_references=False)))
        assert {"hookName": "createRuntime", "path": hook, "args": ["vrampack-hook"]} in edits["hooks"]


async def test_start_without_prestart_gets_no_card() -> None:
    """Between kubelet's restart and our registration PreStart is skipped: the name is there, but no spec."""
    async with agent_harness(starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        await run_pod(world, pod)
        await world.wait_until(lambda: not list_specs(world))
        await world.kill_agent()
        await world.kubelet.restart()
        world.kubelet.exit(pod, "main")
        unasked = await world.kubelet.start(pod, "main")
        assert await runtime.resolve(unasked.cdi_devices[0]) is None


async def test_a_restarted_agent_keeps_known_specs_and_deletes_leftovers() -> None:
    async with agent_harness(starts=False) as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        await run_pod(world, pod)
        await world.kill_agent()
        left = world.cdi_folder / f"vrampack-{'0f' * 16}.json"
        left.write_text("{}")
        await world.start_agent()
        assert not left.exists()
        assert cards_of(await resolve(runtime, await restart_container(world, pod))) == ["/dev/nvidia0"]


async def test_a_stopping_agent_deletes_its_specs() -> None:
    async with agent_harness(starts=False) as world:
        await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        assert await world.kubelet.admit(pod)
        await world.kubelet.start(pod, "main")
        assert len(list_specs(world)) == 1
        await world.stop_agent()
        assert list_specs(world) == []


async def test_containers_keep_the_mode_that_they_were_allocated_in() -> None:
    """exact, then cdi, then exact again: three pods, all of which restart after each change."""
    async with agent_harness(*TWO_CARDS, starts=False, injection="exact") as world:
        runtime = await world.add_runtime()
        await world.start_agent()
        pods = [put_bound_pod(world, "wired", cards=[1])]
        await run_pod(world, pods[0])
        for setting, is_injected in (("cdi", True), ("exact", False)):
            await world.kill_agent()
            world.settings["injection"] = setting
            await world.start_agent()
            pods.append(put_bound_pod(world, f"as-{setting}", cards=[1], has_references=not is_injected))
            await run_pod(world, pods[-1])
            for pod in pods:
                started = await restart_container(world, pod)
                report_status(world, pod)
                if pod.name == "as-cdi":
                    assert cards_of(await resolve(runtime, started)) == ["/dev/nvidia1"]
                else:
                    assert (started.cdi_devices, started.env["NVIDIA_VISIBLE_DEVICES"]) == ((), "GPU-1")


async def test_pod_without_references_is_refused_in_exact_mode() -> None:
    async with agent_harness(starts=False, injection="exact") as world:
        await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        assert "created before the admission policy" in await start_refused(world, pod)


async def test_a_start_is_refused_while_the_spec_folder_is_missing() -> None:
    async with agent_harness(starts=False) as world:
        await world.add_runtime()
        await world.start_agent()
        pod = put_bound_pod(world, "p", has_references=False)
        assert await world.kubelet.admit(pod)
        world.cdi_folder.rename(world.folder / "away")
        assert "card GPU-0" in await start_refused(world, pod)
        (world.folder / "away").rename(world.cdi_folder)
        await world.kubelet.start(pod, "main")
        assert world.read_metric("vrampack_agent_starts_total", result="cdi") == 1


async def test_an_agent_exits_when_its_spec_folder_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mount keeps showing the removed folder; a new container gets the one that the runtime reads."""
    monkeypatch.setattr(injection, "FOLDER_SECONDS", 0.02)
    async with agent_harness(*TWO_CARDS, starts=False) as world:
        await world.add_runtime()
        mounted = os.open(world.cdi_folder, os.O_PATH | os.O_DIRECTORY)
        world.settings["cdi"] = {"folder": f"/proc/self/fd/{mounted}"}
        await world.start_agent()
        assert world.is_running
        shutil.rmtree(world.cdi_folder)
        world.cdi_folder.mkdir()
        assert await world.has_ended()
        os.close(mounted)
