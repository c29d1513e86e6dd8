"""Admission: which ids a container gets, what reaches the plugin, and what a refusal says."""

from __future__ import annotations

from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.rig import IDS, kubelet_rig
from tests.fakes.kubelet.scripted_plugin import MEMORY

WORDS = "Pod was rejected: Allocate failed due to {}, which is unexpected"


async def test_each_container_gets_the_ids_it_requests_in_one_allocate_call() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(units={"a": 3, "b": 2, "plain": 0})
        assert await rig.kubelet.admit(pod)
        assert [len(call.device_ids) for call in rig.kubelet.calls_of("Allocate")] == [3, 2]
        held = [rig.kubelet.device_ids(pod, name) for name in ("a", "b")]
        assert [len(ids) for ids in held] == [3, 2]
        assert not held[0] & held[1]
        assert await rig.listed() == {"p": {"a": held[0], "b": held[1], "plain": set()}}


async def test_the_order_of_ids_comes_from_the_seed() -> None:
    seen = []
    for seed in (1, 1, 2):
        async with kubelet_rig(seed=seed) as rig:
            await rig.kubelet.admit(kubelet_pod(units=16))
            seen.append(rig.kubelet.calls_of("Allocate")[0].device_ids)
    assert seen[0] == seen[1] != seen[2]


async def test_preferred_ids_are_allocated_where_they_are_free() -> None:
    """Two of the three preferred ids are free; the other two of the 4 requested are arbitrary, and an unknown id is ignored."""
    async with kubelet_rig() as rig:
        first = kubelet_pod("first", units=1)
        rig.plugin.prefers = [IDS[0]]
        await rig.kubelet.admit(first)
        rig.plugin.prefers = [IDS[0], IDS[1], IDS[2], "no such id"]
        second = kubelet_pod("second", units=4)
        await rig.kubelet.admit(second)
        ids = rig.kubelet.device_ids(second, "main")
        assert {IDS[1], IDS[2]} < ids
        assert IDS[0] not in ids
        assert len(ids) == 4
        assert rig.plugin.asked.allocation_size == 4
        assert IDS[0] not in rig.plugin.asked.available_deviceIDs


async def test_without_the_option_the_plugin_is_not_asked_for_a_preference() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.options.get_preferred_allocation_available = False
        await rig.plugin.register()
        await rig.kubelet.registered(MEMORY, times=2)
        await rig.kubelet.admit(kubelet_pod())
        assert "GetPreferredAllocation" not in rig.plugin.entered


async def test_an_error_of_allocate_fails_the_pod_for_good_and_frees_its_ids() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.refusals["Allocate"] = "no room"
        pod = kubelet_pod()
        assert not await rig.kubelet.admit(pod)
        assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
        assert pod.message == WORDS.format("rpc error: code = Unknown desc = no room")
        rig.plugin.refusals.clear()
        assert await rig.kubelet.admit(kubelet_pod("whole", units=16))


async def test_an_error_of_get_preferred_allocation_fails_the_pod() -> None:
    async with kubelet_rig() as rig:
        rig.plugin.refusals["GetPreferredAllocation"] = "do not know"
        pod = kubelet_pod()
        assert not await rig.kubelet.admit(pod)
        assert "GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = do not know" in pod.message


async def test_a_pod_is_rejected_when_too_few_ids_are_free() -> None:
    async with kubelet_rig() as rig:
        await rig.kubelet.admit(kubelet_pod("first", units=14))
        pod = kubelet_pod("second", units=4)
        assert not await rig.kubelet.admit(pod)
        words = f"requested number of devices unavailable for {MEMORY}. Requested: 4, Available: 2"
        assert pod.message == WORDS.format(words)


async def test_ids_of_a_pod_that_is_gone_are_free_again() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod("first", units=16)
        await rig.kubelet.admit(pod)
        rig.kubelet.remove(pod)
        assert await rig.listed() == {}
        assert await rig.kubelet.admit(kubelet_pod("second", units=16))


async def test_ids_of_init_containers_are_reused_and_hidden_from_pod_resources() -> None:
    """Init 6, main 4: main's ids are four of init's, chosen without asking for a preference, and allocated again."""
    async with kubelet_rig() as rig:
        pod = kubelet_pod(units={"main": 4}, init={"init": 6})
        await rig.kubelet.admit(pod)
        init, main = rig.kubelet.device_ids(pod, "init"), rig.kubelet.device_ids(pod, "main")
        assert main < init
        assert rig.plugin.entered[-3:] == ["GetPreferredAllocation", "Allocate", "Allocate"]
        assert await rig.listed() == {"p": {"main": main}}


async def test_a_larger_main_container_keeps_the_reused_ids_and_gets_more() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(units={"main": 6}, init={"init": 4})
        await rig.kubelet.admit(pod)
        init = rig.kubelet.device_ids(pod, "init")
        assert init < rig.kubelet.device_ids(pod, "main")
        assert set(rig.plugin.asked.must_include_deviceIDs) == init


async def test_a_sidecar_keeps_its_ids_for_itself() -> None:
    async with kubelet_rig() as rig:
        pod = kubelet_pod(units={"main": 4}, init={"sidecar": 4}, sidecars=["sidecar"])
        await rig.kubelet.admit(pod)
        sidecar, main = rig.kubelet.device_ids(pod, "sidecar"), rig.kubelet.device_ids(pod, "main")
        assert not sidecar & main
        assert await rig.listed() == {"p": {"sidecar": sidecar, "main": main}}


async def test_an_unregistered_resource_is_admitted_without_a_call() -> None:
    """Kubelet does not treat it as a device: the pod is admitted and started without plugin or fence."""
    async with kubelet_rig() as rig:
        pod = kubelet_pod(resource="example.com/other")
        assert await rig.kubelet.admit(pod)
        await rig.kubelet.start(pod, "main")
        assert rig.kubelet.history.calls == []
