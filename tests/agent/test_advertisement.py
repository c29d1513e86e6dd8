"""What a node offers, through the whole agent: to kubelet, on the Node, as an event and on the metrics page."""

from __future__ import annotations

import json

import pytest

from tests.agent.agent_harness import NODE, V100_MIB, AgentHarness, agent_harness
from tests.fakes.kubelet.pods import kubelet_pod
from tests.fakes.kubelet.scripted_plugin import MEMORY, ScriptedPlugin
from tests.support.scripted_driver import LOST, ScriptedDriver, scripted_mig_instance
from vrampack.agent import app
from vrampack.agent.cluster import observed_pods
from vrampack.agent.device_plugin import conflicting_plugins
from vrampack.agent.nvml.driver import GpuInventory, Xid
from vrampack.agent.nvml.errors import DriverError, DriverHungError, NoDriverError

TWO = (V100_MIB, V100_MIB)
UNITS = 15  # floor(16130 / 1024)
LOST_CARD = DriverError("GPU is lost", LOST)
OBSERVED = "vrampack.dev/observed"


def healthy_cards(world: AgentHarness) -> set[str]:
    """Cards whose devices kubelet hands out."""
    return {each.partition("::")[0] for each in world.kubelet.healthy_ids(MEMORY)}


def node_writes(world: AgentHarness) -> float:
    return world.read_metric("vrampack_agent_node_writes_total")


def reasons(world: AgentHarness) -> list[str]:
    return [event["reason"] for event in world.api.list_events()]


async def quiet(world: AgentHarness, *, writes: int = 2) -> None:
    """Wait for the replies to so many writes (at the start: cards and label), and for the watch to show them."""
    await world.wait_until(lambda: node_writes(world) == writes)
    await world.wait_until(lambda: not world.agent.components.own_node._list_differences())


async def test_unhealthy_card_withdraws_only_its_own_device_ids() -> None:
    async with agent_harness(*TWO) as world:
        await quiet(world)
        world.driver.failing["GPU-1"] = LOST_CARD
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True, "GPU-1": False})
        await world.wait_until(lambda: healthy_cards(world) == {"GPU-0"})
        assert world.kubelet.allocatable(MEMORY) == UNITS
        assert world.kubelet.capacity(MEMORY) == 2 * UNITS
        await world.wait_until(lambda: "GPUMemoryCardUnhealthy" in reasons(world))
        assert world.read_metric("vrampack_agent_card_healthy", node=NODE, UUID="GPU-1", gpu="1") == 0
        assert world.read_metric("vrampack_agent_card_healthy", node=NODE, UUID="GPU-0", gpu="0") == 1
        await quiet(world, writes=3)


async def test_a_card_that_recovers_is_offered_again() -> None:
    async with agent_harness(*TWO) as world:
        await quiet(world)
        world.driver.failing["GPU-1"] = LOST_CARD
        await world.wait_until(lambda: healthy_cards(world) == {"GPU-0"})
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True, "GPU-1": False})
        world.driver.failing.clear()
        await world.wait_until(lambda: healthy_cards(world) == {"GPU-0", "GPU-1"})
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True, "GPU-1": True})
        await world.wait_until(lambda: "GPUMemoryCardRecovered" in reasons(world))
        await quiet(world, writes=4)


async def test_xid_withdraws_the_card_at_once_and_is_counted() -> None:
    async with agent_harness(*TWO) as world:
        world.driver.reports.put_nowait(Xid(79, "GPU-0"))
        await world.wait_until(lambda: healthy_cards(world) == {"GPU-1"})
        assert world.read_metric("vrampack_agent_xid_errors_total", UUID="GPU-0", xid="79") == 1


async def test_pods_of_an_unhealthy_card_s_neighbour_still_start() -> None:
    async with agent_harness(*TWO) as world:
        world.driver.failing["GPU-1"] = LOST_CARD
        await world.wait_until(lambda: healthy_cards(world) == {"GPU-0"})
        pod = world.add_bound_pod("p", card=0)
        assert await world.kubelet.admit(pod)
        started = await world.kubelet.start(pod, "main")
        assert started.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


class HangingDriver(ScriptedDriver):
    """Answers nothing while `hangs`, as a driver whose ioctl does not come back."""

    hangs = False

    async def list_gpus(self) -> GpuInventory:
        if self.hangs:
            raise DriverHungError("the list of cards: no answer from the driver in 10 s")
        return await super().list_gpus()


async def test_a_driver_that_hangs_does_not_stop_the_stream() -> None:
    """A pod that kubelet had admitted waits until the driver lists the cards again (`test_missing_cards.py`)."""
    async with agent_harness(*TWO, starts=False) as world:
        world.driver = HangingDriver(*world.driver.present)
        await world.start_agent()
        pod = world.add_bound_pod("before", card=0)
        assert await world.kubelet.admit(pod)
        world.driver.hangs = True
        await world.wait_until(lambda: world.kubelet.allocatable(MEMORY) == 0)  # unhealthy, not gone
        assert world.kubelet.capacity(MEMORY) == 2 * UNITS
        assert "does not say now whether card GPU-0" in str(await world.kubelet.try_start(pod, "main"))
        assert len(world.kubelet.history.registrations) == 1
        assert world.read_metric("vrampack_agent_driver_errors_total") >= 3
        world.driver.hangs = False
        await world.wait_until(lambda: world.kubelet.allocatable(MEMORY) == 2 * UNITS)
        await world.kubelet.start(pod, "main")


async def test_a_repartitioned_card_is_published_again() -> None:
    async with agent_harness(starts=False) as world:
        world.driver.present = (scripted_mig_instance("a", slot=0), scripted_mig_instance("b", slot=1))
        world.driver.cut = frozenset({"GPU-0"})
        await world.start_agent()
        await world.wait_until(lambda: world.read_card_health() == {"MIG-a": True, "MIG-b": True})
        world.driver.present = (scripted_mig_instance("c", slot=0, memory_mib=9856),)
        await world.wait_until(lambda: world.read_card_health() == {"MIG-c": True})
        await world.wait_until(lambda: healthy_cards(world) == {"MIG-c"})
        assert world.kubelet.allocatable(MEMORY) == 9  # floor(9856 / 1024)
        assert len(world.kubelet.history.registrations) == 1


async def test_too_many_devices_are_not_offered_and_a_larger_unit_is_suggested() -> None:
    """DP-1: kubelet drops a plugin whose list is over 4 MiB, and with it every running pod's devices."""
    async with agent_harness(143771, 143771, starts=False, unit_mib=1) as world:
        await world.launch_agent()
        await world.wait_until(
            lambda: (
                "unit_mib: 1 makes 287542 devices" in world.agent.find_unready_reason()
                and list(world.read_card_health().values()) == [False, False]
            )
        )
        await world.wait_until(lambda: "GPUMemoryNotOffered" in reasons(world))
        assert world.kubelet.allocatable(MEMORY) == 0
        assert "unit_mib: 1 makes 287542 devices" in world.agent.components.advertisement.current.problem
        assert "set 4 on every node and on the extender" in world.agent.components.advertisement.current.problem
        assert world.read_metric("vrampack_agent_offered") == 0
        # kubelet took the list, so the stream goes on and the plugin does not register over and over.
        await world.wait_until(lambda: MEMORY in world.kubelet.life.books.healthy)
        assert not world.kubelet.life.registrar.endpoints[MEMORY].is_stopped
        assert len(world.kubelet.history.registrations) == 1
        assert world.read_metric("vrampack_agent_streams_closed_total") == 0


async def test_the_suggested_unit_works() -> None:
    async with agent_harness(143771, 143771, unit_mib=4) as world:
        assert world.kubelet.allocatable(MEMORY) == 2 * (143771 // 4)
        assert world.read_metric("vrampack_agent_offered") == 1


async def test_our_offer_is_withdrawn_when_nvidia_s_plugin_appears() -> None:
    async with agent_harness() as world:
        await quiet(world)
        world.patch_node_status({MEMORY: str(UNITS), "nvidia.com/gpu": "1"})
        await world.wait_until(lambda: world.kubelet.allocatable(MEMORY) == 0)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        await world.wait_until(lambda: "GPUMemoryNotOffered" in reasons(world))
        assert "this node offers nvidia.com/gpu as well" in world.agent.components.advertisement.current.problem
        world.patch_node_status({MEMORY: str(UNITS), "nvidia.com/gpu": "0"})
        await world.wait_until(lambda: world.kubelet.allocatable(MEMORY) == UNITS)


async def test_nothing_is_offered_where_nvidias_plugin_was_there_first() -> None:
    async with agent_harness(starts=False) as world:
        world.patch_node_status({"nvidia.com/gpu": "1"})
        await world.launch_agent()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        await world.wait_until(lambda: world.agent.components.registration.is_registered)
        assert "this node offers nvidia.com/gpu as well" in world.agent.find_unready_reason()
        assert "label the node nvidia.com/gpu.deploy.device-plugin=false" in world.agent.find_unready_reason()
        assert world.kubelet.allocatable(MEMORY) == 0


@pytest.mark.parametrize("cards", [{"include": ["GPU-0"]}, {"exclude": ["GPU-1"]}], ids=str)
@pytest.mark.parametrize("other", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
async def test_both_plugins_can_serve_a_node_whose_cards_are_divided(cards: dict[str, list[str]], other: str) -> None:
    async with agent_harness(*TWO, starts=False, cards=cards) as world:
        world.patch_node_status({other: "1"})
        await world.start_agent()
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert healthy_cards(world) == {"GPU-0"}


async def test_a_second_registrant_of_our_resource_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicting_plugins, "MISMATCH_SECONDS", 0.2)
    monkeypatch.setattr(conflicting_plugins, "CHECK_INTERVAL_SECONDS", 0.05)
    async with agent_harness() as world:
        world.patch_node_status({MEMORY: str(UNITS)})
        async with ScriptedPlugin(world.kubelet.plugins_folder, ["other::0"], name="other.sock") as other:
            await other.register()
            await world.kubelet.until(lambda: world.kubelet.capacity(MEMORY) == 1)
            world.patch_node_status({MEMORY: "1"})  # as kubelet says it 10 s later
            await world.wait_until(
                lambda: "another plugin registered it too" in world.agent.components.advertisement.current.problem
            )
            assert (
                f"the node has 1 of {MEMORY} and this agent lists {UNITS}"
                in world.agent.components.advertisement.current.problem
            )
            await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})


async def test_capacity_of_1000_written_as_1k_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicting_plugins, "MISMATCH_SECONDS", 0.0)
    async with agent_harness(1024 * 1000) as world:
        await quiet(world)
        world.patch_node_status({MEMORY: "1k"})
        await world.wait_until(lambda: world.agent.components.conflicting_plugins._capacity == {MEMORY: "1k"})
        assert world.agent.components.advertisement.current.problem == ""


async def test_cards_missing_at_startup_are_removed_from_the_node() -> None:
    """The node still has what the last agent wrote; the driver is known before the node is."""
    async with agent_harness() as world:
        await quiet(world)
        await world.stop_agent()
        world.driver.error = NoDriverError("libnvidia-ml.so.1 is not there")
        await world.launch_agent()
        await world.wait_until(lambda: world.read_card_health() == {})
        assert json.loads(world.read_annotation() or "")["cards"] == []
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_a_restart_of_the_agent_writes_nothing() -> None:
    async with agent_harness() as world:
        await quiet(world)
        version = world.api.get("nodes", NODE)["metadata"]["resourceVersion"]
        await world.stop_agent()
        await world.start_agent()
        await world.wait_until(
            lambda: world.agent.components.own_node.get_current("labels", "vrampack.dev/enforcement") is not None
        )
        assert world.api.get("nodes", NODE)["metadata"]["resourceVersion"] == version
        assert node_writes(world) == 0


async def test_the_label_names_the_enforcement_mode() -> None:
    async with agent_harness(enforcement="none") as world:
        await world.wait_until(
            lambda: (
                world.api.get("nodes", NODE)["metadata"].get("labels")
                == {"vrampack.dev/enforcement": "none", "vrampack.dev/injection": "exact"}
            )
        )
        assert world.read_metric("vrampack_agent_enforcement_info", mode="none") == 1


async def test_a_back_end_that_cannot_work_is_reported_and_no_card_offered() -> None:
    async with agent_harness(starts=False, enforcement="native") as world:
        await world.launch_agent()
        await world.wait_until(lambda: "enforcement: " in world.agent.components.advertisement.current.problem)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})


def seen(world: AgentHarness) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(world.read_annotation(OBSERVED) or '{"pods":{}}')["pods"]
    return found


@pytest.mark.parametrize("form", ["{}::{}", "{}-_-{}"], ids=["our ids", "gpushare's ids"])
async def test_a_pod_without_a_record_is_observed_by_its_ids_until_it_is_gone(form: str) -> None:
    async with agent_harness(*TWO, starts=False) as world:
        ids = [form.format(f"GPU-{card}", number) for card in range(2) for number in range(UNITS)]
        async with ScriptedPlugin(world.kubelet.plugins_folder, ids, name="earlier.sock") as earlier:
            await earlier.register()
            await world.kubelet.registered(MEMORY)
            earlier.prefers = [each for each in ids if each.startswith("GPU-1")][:4]
            pod = kubelet_pod("older", units=4, has_references=False)
            pod.spec["spec"]["nodeName"] = NODE
            assert await world.kubelet.admit(pod)
            await world.kubelet.start(pod, "main")
        world.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
        await world.launch_agent()
        await world.wait_until(lambda: seen(world) == {pod.uid: [{"uuid": "GPU-1", "units": 4}]})
        world.kubelet.remove(pod)
        world.api.delete("pods", pod.name, grace_seconds=0)
        await world.wait_until(lambda: world.read_annotation(OBSERVED) is None)


async def test_pods_with_a_record_are_not_observed() -> None:
    async with agent_harness() as world:
        await quiet(world)
        pod = world.add_bound_pod("p")
        assert await world.kubelet.admit(pod)
        await world.kubelet.start(pod, "main")
        await world.wait_until(lambda: world.agent.components.pod_cache.find_pod(pod.uid) is not None)
        assert world.read_annotation(OBSERVED) is None
        assert node_writes(world) == 2


async def test_kubelet_is_asked_again_after_a_failed_pod_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_pods, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(app, "OBSERVE_INTERVAL_SECONDS", 0.1)
    async with agent_harness() as world:
        pod = kubelet_pod("naked", units=4, has_references=False)
        pod.spec["spec"]["nodeName"] = NODE
        assert await world.kubelet.admit(pod)
        world.kubelet.doors.list_pods.refuse("busy", times=2)
        world.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
        await world.wait_until(lambda: seen(world) == {pod.uid: [{"uuid": "GPU-0", "units": 4}]})
