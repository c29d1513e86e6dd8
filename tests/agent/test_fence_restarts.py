"""A container that was admitted once is admitted at every restart; ids handed out again belong to another container."""

from __future__ import annotations

import json
from collections import Counter

import msgspec

from tests.agent.agent_harness import agent_harness
from tests.agent.pod_lifecycle import (
    assert_fence_agrees,
    count_refusals,
    fence_of,
    put_bound_pod,
    remove_pod,
    restart_container,
    run_pod,
    start_container,
    start_refused,
)
from tests.fakes.api import FakeKubeApi
from tests.fakes.kubelet.scripted_plugin import MEMORY
from tests.support.builders import snapshot_node
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.kube.objects import LocalPodObject

COUNT = {"aliyun.com/gpu-count": "2"}
WHOLE = {"ack.gpushare.placement": "require-whole-device"}
TWO = (16130, 16130)
MISMATCHES = "vrampack_agent_id_card_mismatch_total"


async def test_with_the_api_server_down_only_admitted_pods_restart() -> None:
    async with agent_harness() as world:
        known, new = put_bound_pod(world, "known"), put_bound_pod(world, "new")
        await run_pod(world, known)
        assert await world.kubelet.admit(new)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(new.uid) is not None)
        await world.api.__aexit__(None, None, None)
        assert (await restart_container(world, known)).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        outcome = await world.kubelet.try_start(new, "main")
        assert "the API server does not say what pod default/new was given" in str(outcome)
        assert count_refusals(world, "api") == 1
        assert list(world.agent.components.rejected_pods._rejected) == [new.uid]  # it is named if that lasts
        await world.api.__aenter__()
        await world.kubelet.start(new, "main")
        assert not world.agent.components.rejected_pods._rejected


async def test_a_restarted_agent_admits_running_pods_without_the_api_server() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        await run_pod(world, pod)
        await world.kill_agent()
        await world.start_agent()
        await world.api.__aexit__(None, None, None)
        assert (await restart_container(world, pod)).env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        await world.api.__aenter__()


async def test_after_a_change_of_unit_running_pods_hold_their_memory_in_new_units() -> None:
    """12 x 63 / 15 = 50.4 of 63 units. Of the pods that wait, one asks too much and one was bound in the old unit."""
    async with agent_harness() as world:
        old, late = put_bound_pod(world, "old", units=12), put_bound_pod(world, "late", units=2)
        await run_pod(world, old)
        await world.stop_agent()
        world.settings["unit_mib"] = 256
        await world.start_agent()
        room = snapshot_node("gpu-0", units=(63,), memory_mib=(16130,))
        large = world.add_bound_pod("large", units=13, room=room)
        small = world.add_bound_pod("small", units=12, room=room)
        text = "card GPU-0 has 63 units, running pods hold 51, and this pod was given 13"
        assert text in await start_refused(world, large)
        text = "it was bound when card GPU-0 had 15 units, which has 63 now; recreate the pod"
        assert text in await start_refused(world, late)
        await run_pod(world, small)
        await restart_container(world, old)
        assert fence_of(world).count_held_units() == {"GPU-0": 51 + 12}


async def test_admitted_pod_may_restart_when_its_card_has_fewer_units_than_it_was_given() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", units=8, init={"prepare": 4})
        await run_pod(world, pod, "prepare")
        world.kubelet.exit(pod, "prepare")
        await start_container(world, pod)
        (card,) = world.agent.components.advertisement.current.cards
        world.agent.components.advertisement.update_cards((type(card)(0, 4, 4096, "GPU-0"),), "")
        await restart_container(world, pod)
        await restart_container(world, pod, "prepare")  # its sandbox was recreated
        world.kubelet.exit(pod, "prepare")
        assert fence_of(world).count_held_units() == {"GPU-0": 8}


async def test_a_replacement_pod_with_the_same_name_and_ids_is_checked_again() -> None:
    """As in a StatefulSet: kubelet hands it the ids of its predecessor, whose admission does not count for it."""
    async with agent_harness() as world:
        old = put_bound_pod(world, "web-0", uid="old", units=15)
        await run_pod(world, old)
        ids = world.kubelet.device_ids(old, "main")
        world.api.freeze_watches()  # the agent does not hear that the old one is gone
        remove_pod(world, old)
        new = put_bound_pod(world, "web-0", uid="new", units=15, is_recorded=False)
        assert await world.kubelet.admit(new)
        assert world.kubelet.device_ids(new, "main") == ids
        assert "has no record of its cards" in await start_refused(world, new)
        world.api.thaw_watches()


async def test_a_pod_deleted_before_its_lookup_returns_holds_nothing() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p")
        assert await world.kubelet.admit(pod)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is not None)
        answer = await world.agent.components.pod_cache._api.get_pod_bytes("default", "p", timeout_seconds=5)
        world.api.delete("pods", "p", grace_seconds=0)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is None)
        world.agent.components.pod_cache._api = _Late(answer)  # type: ignore[assignment]
        assert "the API server has no pod default/p" in str(await world.kubelet.try_start(pod, "main"))
        assert not fence_of(world).count_held_units()


async def test_a_pod_that_a_new_list_no_longer_shows_has_ended() -> None:
    """The watch was down when it was deleted; a look-up that began before may still be answered."""
    pods = PodCache(FakeKubeApi(), resource=MEMORY, on_pod_ended=lambda _: None)
    manifest = {"metadata": {"uid": "u"}, "spec": {"containers": [{"resources": {"limits": {MEMORY: "4"}}}]}}
    pod = msgspec.json.decode(json.dumps(manifest), type=LocalPodObject)
    for page in ([pod], []):
        assert not pods.has_ended("u")
        pods.on_list_started("start")
        pods.on_page(page)
        pods.on_list_finished()
    assert pods.has_ended("u")


class _Late:
    """An API server whose old answer arrives late."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer

    async def get_pod_bytes(self, *_: str, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - the real one's
        return self._answer


async def test_a_plain_init_container_with_the_ids_of_the_main_one_starts() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", init={"prepare": 4})
        started = await run_pod(world, pod, "prepare")
        assert started.device_ids == world.kubelet.device_ids(pod, "main")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        world.kubelet.exit(pod, "prepare")
        await world.kubelet.start(pod, "main")
        assert fence_of(world).count_held_units() == {"GPU-0": 4}


async def test_larger_init_container_is_identified_by_the_ids_that_it_shares() -> None:
    """6 of 15 units are floor(16130 * 6 / 15) = 6452 MiB; the pod holds the larger sum for life."""
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", init={"prepare": 6})
        started = await run_pod(world, pod, "prepare")
        assert started.device_ids > world.kubelet.device_ids(pod, "main")
        assert started.env["NVIDIA_GPU_MEMORY_LIMIT"] == "6452"
        world.kubelet.exit(pod, "prepare")
        assert (await world.kubelet.start(pod, "main")).env["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"
        assert fence_of(world).count_held_units() == {"GPU-0": 6}


async def test_an_init_container_alone_is_found_in_kubelets_checkpoint() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", units={"main": 0}, init={"prepare": 4})
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is not None)
        started = await run_pod(world, pod, "prepare")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert fence_of(world).count_held_units() == {"GPU-0": 4}


async def test_units_of_a_sidecar_and_the_main_container_add_up_on_one_card() -> None:
    async with agent_harness() as world:
        pod = put_bound_pod(world, "p", init={"helper": 2}, sidecars=["helper"])
        await run_pod(world, pod, "helper", "main")
        assert fence_of(world).count_held_units() == {"GPU-0": 6}
        assert (await restart_container(world, pod, "helper")).env[
            "NVIDIA_GPU_MEMORY_LIMIT"
        ] == "2150"  # 16130 * 2 / 15
        await assert_fence_agrees(world)


async def test_a_pod_of_two_cards_sees_both() -> None:
    """8 units are 4 on each, and the limit is that of one card."""
    async with agent_harness(*TWO) as world:
        started = await run_pod(world, put_bound_pod(world, "p", cards=[0, 1], units=8, labels=COUNT))
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
        assert started.env["NVIDIA_GPU_MEMORY_LIMIT"] == "4301"
        assert fence_of(world).count_held_units() == {"GPU-0": 4, "GPU-1": 4}
        await assert_fence_agrees(world)


async def test_a_pod_of_two_cards_is_refused_where_one_of_them_is_full() -> None:
    async with agent_harness(*TWO) as world:
        await run_pod(world, put_bound_pod(world, "first", cards=[1], units=12))
        second = put_bound_pod(world, "second", cards=[0, 1], units=8, labels=COUNT)
        assert "card GPU-1 has 15 units, running pods hold 12" in await start_refused(world, second)
        assert fence_of(world).count_held_units() == {"GPU-1": 12}


async def test_pod_with_a_whole_card_holds_all_units_and_may_use_all_memory() -> None:
    async with agent_harness(*TWO) as world:
        started = await run_pod(world, put_bound_pod(world, "p", units=4, labels=WHOLE))
        assert started.env["NVIDIA_GPU_MEMORY_LIMIT"] == "16130"
        assert fence_of(world).count_held_units() == {"GPU-0": 15}
        assert "running pods hold 15" in await start_refused(world, put_bound_pod(world, "late", units=1))
        await assert_fence_agrees(world)


async def test_device_ids_that_a_smaller_whole_card_lacks_are_no_mismatch() -> None:
    """16 units pay for a card of 15: kubelet takes the last one from the other card, which stays free in the ledger."""
    async with agent_harness(16130, 17000) as world:
        pod = put_bound_pod(world, "p", units={"main": 9, "side": 7}, labels=WHOLE)
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is not None)
        assert await world.kubelet.admit(pod)
        started = [await start_container(world, pod, name) for name in ("main", "side")]
        cards = Counter(each.partition("::")[0] for one in started for each in one.device_ids)
        assert cards == {"GPU-0": 15, "GPU-1": 1}
        assert world.read_metric(MISMATCHES) == 0


async def test_device_ids_of_another_card_than_the_whole_one_are_a_mismatch() -> None:
    """Kubelet asks about the later pod first, and is proposed the card of the other."""
    async with agent_harness(16130, 17000) as world:
        put_bound_pod(world, "first", units=16, labels=WHOLE, cards=[0], bound_at=1)
        second = put_bound_pod(world, "second", units=16, labels=WHOLE, cards=[1], bound_at=2)
        await world.wait_until(lambda: len(world.agent.components.pod_cache.list_pods()) == 2)
        assert await world.kubelet.admit(second)
        started = await start_container(world, second)
        assert Counter(each.partition("::")[0] for each in started.device_ids) == {"GPU-0": 15, "GPU-1": 1}
        assert world.read_metric(MISMATCHES) == 1


async def test_a_record_of_a_whole_card_is_refused_to_a_pod_that_asked_for_a_part() -> None:
    async with agent_harness(*TWO) as world:
        pod = put_bound_pod(world, "p", units=4, labels=WHOLE)
        world.api.delete("pods", "p", grace_seconds=0)
        forged = put_bound_pod(world, "q", units=4, change=dict(pod.annotations))
        assert json.loads(pod.annotations["vrampack.dev/allocation"])["cards"][0]["units"] == 15
        assert "not what they request" in await start_refused(world, forged)
