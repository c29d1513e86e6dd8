"""`injection: ids`: the device ids say the card, the record follows before the container starts, or it does not start."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.agent.agent_harness import NODE, AgentHarness, agent_harness
from tests.fakes.kubelet.pods import KubeletPod, kubelet_pod
from tests.fakes.kubelet.starting import StartedContainer, WaitingContainer


def card_of(world: AgentHarness, pod: KubeletPod, container: str = "main") -> str:
    """The one card that kubelet counts the container on."""
    (card,) = {each.partition("::")[0] for each in world.kubelet.device_ids(pod, container)}
    return card


def recorded_cards(world: AgentHarness, name: str) -> list[str]:
    annotations: Mapping[str, str] = world.api.get("pods", name)["metadata"]["annotations"]
    return [card["uuid"] for card in json.loads(annotations["vrampack.dev/allocation"])["cards"]]


async def test_the_record_is_made_to_say_the_card_of_the_ids() -> None:
    """Twelve pods of 5 units on four cards of 15, recorded three to a card; kubelet takes them in an order of its own."""
    async with agent_harness(*[16130] * 4, injection="ids") as world:
        pods = [world.add_bound_pod(f"p{at}", card=at // 3, units=5, has_references=False) for at in range(12)]
        await world.kubelet.admit_shuffled(pods)
        moved = started = 0
        for pod in pods:
            ids = {each.partition("::")[0] for each in world.kubelet.device_ids(pod, "main")}
            outcome = await world.kubelet.try_start(pod, "main")
            if len(ids) > 1:
                assert isinstance(outcome, WaitingContainer)
                assert "kubelet took devices of" in outcome.message
                continue
            assert isinstance(outcome, StartedContainer)
            started += 1
            assert outcome.env["NVIDIA_VISIBLE_DEVICES"] == card_of(world, pod)
            assert outcome.env["NVIDIA_GPU_MEMORY_LIMIT"] == "5376"  # 16130 * 5 / 15, rounded down
            assert recorded_cards(world, pod.name) == [card_of(world, pod)]
            moved += card_of(world, pod) != f"GPU-{pods.index(pod) // 3}"
        assert started >= 8
        assert world.read_metric("vrampack_agent_record_corrections_total") == moved


async def test_a_node_in_this_mode_says_so() -> None:
    async with agent_harness(injection="ids") as world:
        assert json.loads(world.read_annotation() or "")["injection"] == "ids"


async def test_a_pod_without_a_record_is_settled_from_its_ids() -> None:
    async with agent_harness(injection="ids") as world:
        pod = world.add_bound_pod("a", has_references=False)
        for key in list(pod.annotations):
            del pod.annotations[key]
        world.api.patch("pods", "a", {"metadata": {"annotations": None}})
        await world.kubelet.admit(pod)
        started = await world.kubelet.start(pod, "main")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"
        assert recorded_cards(world, "a") == ["GPU-0"]


async def test_two_containers_are_on_one_card_or_the_second_does_not_start() -> None:
    """8 and 4 units on a card of 12, of which kubelet counts 2 for a pod that is elsewhere: the 4 are of the other card."""
    async with agent_harness(12 * 1024, 12 * 1024, injection="ids") as world:
        elsewhere = kubelet_pod("elsewhere", units=2)
        elsewhere.spec["spec"]["nodeName"] = NODE
        await world.kubelet.admit(elsewhere)  # before the agent could say which ids it should have
        elsewhere.annotations.update(world.records_of(elsewhere, [1]))
        world.api.restore({"apiVersion": "v1", "kind": "Pod", **elsewhere.manifest()})
        assert card_of(world, elsewhere) == "GPU-0"
        await world.kubelet.start(elsewhere, "main")

        pod = world.add_bound_pod("a", units={"one": 8, "two": 4}, has_references=False)
        await world.kubelet.admit(pod)
        assert (card_of(world, pod, "one"), card_of(world, pod, "two")) == ("GPU-0", "GPU-1")
        await world.kubelet.start(pod, "one")
        outcome = await world.kubelet.try_start(pod, "two")
        assert isinstance(outcome, WaitingContainer)
        assert "of another card for this container than for the pod's first" in outcome.message


async def test_a_pod_that_admission_wired_up_is_judged_by_its_annotations() -> None:
    async with agent_harness(*[16130] * 2, injection="ids") as world:
        pod = world.add_bound_pod("a", card=1)
        await world.kubelet.admit(pod)
        started = await world.kubelet.start(pod, "main")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
        assert world.read_metric("vrampack_agent_record_corrections_total") == 0
