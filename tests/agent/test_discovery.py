"""What is published about the cards, and when: only changes, and never fewer cards than pods may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.nvml.profiles import PROFILES, stub_gpus
from tests.support.nvml_stub import load_stub_machine
from tests.support.scripted_driver import LOST, ScriptedDriver, scripted_gpu, scripted_mig_instance
from vrampack.agent.inventory.discovery import CardChange, Discovery
from vrampack.agent.inventory.discovery_settings import DiscoverySettings
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.inventory.xid_actions import XidRules
from vrampack.agent.nvml.driver import Gpu, GpuInventory, UnreadableGpu, Xid
from vrampack.agent.nvml.errors import DriverError, DriverHungError, HiddenDriverError, NoDriverError
from vrampack.agent.nvml.nvml_driver import NvmlDriver
from vrampack.cards.node import CardFacts
from vrampack.cards.records import MAX_INDEX

HUNG = DriverHungError("the list of cards: no answer from the driver in 10 s")
FAILED = DriverError("Unknown Error", 999)


class DiscoveryHarness:
    """A discovery whose steps a test takes itself."""

    def __init__(self, driver: ScriptedDriver, looking: DiscoverySettings | None = None) -> None:
        self.driver = driver
        self.held: set[str] = set()
        self.told: list[CardChange] = []
        self.discovery = Discovery(
            driver,
            looking or DiscoverySettings(),
            is_card_held=self.held.__contains__,
            on_card_change=self.told.append,
            sleep=_never,
        )

    async def steps(self, count: int = 1) -> list[bool]:
        return [await self.discovery.refresh_cards() for _ in range(count)]

    @property
    def health(self) -> dict[str | None, bool]:
        return {card.uuid: card.healthy for card in self.discovery.cards}

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(notice.kind, notice.gpu.uuid) for notice in self.told]


async def _never(_: float) -> None:
    raise AssertionError("a step does not sleep")


async def test_appeared_cards_are_reported_once() -> None:
    """16130 MiB are 15 units of 1024 and 3 GPUs are 3 cards."""
    setting = DiscoveryHarness(ScriptedDriver(*(scripted_gpu(place) for place in range(3))))
    assert await setting.steps(4) == [True, False, False, False]
    assert setting.discovery.cards == tuple(
        CardFacts(index=place, units=15, memory_mib=16130, uuid=f"GPU-{place}", model="Tesla V100-SXM2-16GB")
        for place in range(3)
    )
    assert setting.kinds == [("appeared", f"GPU-{place}") for place in range(3)]


UNITS = {
    "by its memory": (DiscoverySettings(), 14),  # 15109 / 1024 = 14.75
    "in another unit": (DiscoverySettings(unit_mib=256), 59),  # 15109 / 256 = 59.02
    "pinned": (DiscoverySettings(units_per_card={"Tesla T4": 15}), 15),
    "pinned as a label writes it": (DiscoverySettings(units_per_card={"tesla-t4": 15}), 15),
    "pinned as newer drivers write it": (DiscoverySettings(units_per_card={"NVIDIA T4": 15}), 15),
    "pinned in short": (DiscoverySettings(units_per_card={"T4": 15}), 15),
    "another is pinned": (DiscoverySettings(units_per_card={"T40": 15}), 14),
}


@pytest.mark.parametrize(("looking", "units"), UNITS.values(), ids=UNITS)
async def test_units_are_computed_from_memory_or_pinned_by_model(looking: DiscoverySettings, units: int) -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(memory_mib=15109, model="Tesla T4")), looking)
    await setting.steps()
    assert [card.units for card in setting.discovery.cards] == [units]


OURS = {
    "all": (DiscoverySettings(), ["GPU-0", "GPU-1", "MIG-a", "MIG-b"]),
    "some": (DiscoverySettings(include=frozenset({"GPU-1", "MIG-b"})), ["GPU-1", "MIG-b"]),
    "all instances of a GPU": (DiscoverySettings(include=frozenset({"GPU-2"})), ["MIG-a", "MIG-b"]),
    "all but some": (DiscoverySettings(exclude=frozenset({"GPU-0", "GPU-2"})), ["GPU-1"]),
    "not what is in both": (DiscoverySettings(include=frozenset({"GPU-0"}), exclude=frozenset({"GPU-0"})), []),
}


@pytest.mark.parametrize(("looking", "uuids"), OURS.values(), ids=OURS)
async def test_only_the_selected_cards_are_found(looking: DiscoverySettings, uuids: list[str]) -> None:
    parts = (scripted_mig_instance("a", slot=0, parent=2), scripted_mig_instance("b", slot=1, parent=2))
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1), *parts), looking)
    assert await setting.steps() == [True]
    assert [card.uuid for card in setting.discovery.cards] == uuids


async def test_a_node_without_a_driver_has_no_cards_until_one_appears() -> None:
    """A node without GPUs idles: the agent logs that once, and keeps checking."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu()))
    setting.driver.error = NoDriverError("the list of cards: NVML Shared Library Not Found", 12)
    assert await setting.steps(3) == [True, False, False]
    assert setting.discovery.cards == ()
    assert setting.discovery.problem.startswith("the list of cards: NVML Shared Library Not Found; once a driver")
    setting.driver.error = None
    assert await setting.steps() == [True]
    assert (len(setting.discovery.cards), setting.discovery.problem) == (1, "")


async def test_the_reason_for_no_cards_is_logged_again_when_it_changes() -> None:
    setting = DiscoveryHarness(ScriptedDriver())
    seen = []
    for error in (NoDriverError("no library", 12), HiddenDriverError("no library", 12), None):
        setting.driver.error = error
        assert await setting.steps(2) == [True, False]
        seen.append((setting.discovery.is_driver_absent, "runtimeClassName: nvidia" in setting.discovery.problem))
    assert seen == [(True, False), (False, True), (False, False)]


async def test_driver_failure_at_startup_publishes_nothing_until_the_third_check() -> None:
    """What an earlier agent published is kept for two looks; the third publishes that no card can be used."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu()))
    setting.driver.error = HUNG
    assert await setting.steps(4) == [False, False, True, False]
    assert setting.discovery.cards == ()


@pytest.mark.parametrize("error", [HUNG, FAILED, NoDriverError("gone", 9)])
async def test_a_driver_that_stops_answering_keeps_its_cards(error: DriverError) -> None:
    """Unhealthy at the third failed look; healthy at the third clean one."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1)))
    await setting.steps()
    setting.driver.error = error
    assert await setting.steps(4) == [False, False, True, False]
    assert setting.health == {"GPU-0": False, "GPU-1": False}
    assert setting.discovery.problem.startswith(str(error))
    assert setting.discovery.unhealthy_reasons == {"GPU-0": str(error), "GPU-1": str(error)}
    setting.driver.error = None
    assert await setting.steps(4) == [False, False, True, False]
    assert setting.health == {"GPU-0": True, "GPU-1": True}
    assert setting.discovery.unhealthy_reasons == {}


async def test_replaced_driver_requires_an_agent_restart() -> None:
    """The library in this process stays the old one, whatever is installed on the node."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu()))
    await setting.steps()
    for error, is_outdated in ((FAILED, False), (DriverError("version mismatch", 18), True), (None, False)):
        setting.driver.error = error
        await setting.steps()
        assert setting.discovery.is_outdated == is_outdated


async def test_a_card_that_fails_its_checks_affects_no_other() -> None:
    """DP-7."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1)))
    await setting.steps()
    setting.driver.failing["GPU-1"] = FAILED
    assert await setting.steps(3) == [False, False, True]
    assert setting.health == {"GPU-0": True, "GPU-1": False}
    setting.driver.failing.clear()
    assert await setting.steps(3) == [False, False, True]
    assert setting.kinds[2:] == [("unhealthy", "GPU-1"), ("recovered", "GPU-1")]
    assert setting.told[-1].text == "was: Unknown Error"


async def test_a_lost_card_is_unhealthy_at_once() -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1)))
    await setting.steps()
    setting.driver.failing["GPU-0"] = DriverError("GPU is lost", LOST)
    assert await setting.steps() == [True]
    assert setting.health == {"GPU-0": False, "GPU-1": True}


async def test_card_that_the_driver_counts_but_cannot_describe_is_kept_unhealthy() -> None:
    """Lost before its uuid can be read: it is known by the place it had, and so are its instances."""
    part = scripted_mig_instance("a", slot=0, parent=2)
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1), part))
    await setting.steps()
    setting.driver.present = (scripted_gpu(1),)
    setting.driver.unreadable = tuple(UnreadableGpu(at, DriverError("GPU is lost", LOST), f"GPU-{at}") for at in (0, 2))
    assert await setting.steps() == [True]
    assert setting.health == {"GPU-0": False, "GPU-1": True, "MIG-a": False}
    assert setting.discovery.unhealthy_reasons == {"GPU-0": "GPU is lost", "MIG-a": "GPU is lost"}
    assert setting.discovery.problem == "card at index 0: GPU is lost, card at index 2: GPU is lost"


async def test_a_vanished_gpu_keeps_its_units() -> None:
    """And its index, unless the driver gave it to another: here the other cards moved up."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1), scripted_gpu(2)))
    await setting.steps()
    setting.driver.present = (replace(scripted_gpu(1), index=0), replace(scripted_gpu(2), index=1))
    assert await setting.steps(3) == [True, False, False]
    seen = [(card.index, card.uuid, card.units, card.healthy) for card in setting.discovery.cards]
    assert seen == [(0, "GPU-1", 15, True), (1, "GPU-2", 15, True), (MAX_INDEX, "GPU-0", 15, False)]
    assert setting.kinds[3:] == [("vanished", "GPU-0")]
    assert setting.discovery.unhealthy_reasons == {"GPU-0": "the driver no longer lists it"}


GPU_0, MIG_A = scripted_gpu(0), scripted_mig_instance("a", slot=0)
COUNTED = (UnreadableGpu(0, FAILED),)
"""The driver counts a card that it does not describe, and that may be any."""
CUT = frozenset({"GPU-0"})
PRESENCES: dict[str, tuple[Gpu, GpuInventory | DriverError, CardPresence]] = {
    "listed": (GPU_0, GpuInventory((GPU_0,), ""), CardPresence.LISTED),
    "listed in a list that is not complete": (
        GPU_0,
        GpuInventory((GPU_0,), "", unreadable=COUNTED),
        CardPresence.LISTED,
    ),
    "not listed": (GPU_0, GpuInventory((), ""), CardPresence.MISSING),
    "not listed in a list that is not complete": (
        GPU_0,
        GpuInventory((), "", unreadable=COUNTED),
        CardPresence.UNKNOWN,
    ),
    "no list": (GPU_0, FAILED, CardPresence.UNKNOWN),
    "its GPU is cut by now": (GPU_0, GpuInventory((), "", CUT, COUNTED), CardPresence.MISSING),
    "its GPU is cut otherwise": (MIG_A, GpuInventory((), "", CUT, COUNTED), CardPresence.MISSING),
    "its GPU is whole again": (MIG_A, GpuInventory((GPU_0,), "", unreadable=COUNTED), CardPresence.MISSING),
}


@pytest.mark.parametrize(("gpu", "answer", "want"), PRESENCES.values(), ids=PRESENCES)
async def test_only_a_list_that_can_tell_takes_a_card_for_gone(
    gpu: Gpu, answer: GpuInventory | DriverError, want: CardPresence
) -> None:
    """The numbers of a card that is gone are not given to anyone; those of a card in doubt are its own until a list tells."""
    setting = DiscoveryHarness(ScriptedDriver(gpu))
    await setting.steps()
    setting.held.add(gpu.uuid)
    if isinstance(answer, DriverError):
        setting.driver.error = answer
    else:
        setting.driver.present, setting.driver.cut = answer.gpus, answer.mig_gpus
        setting.driver.unreadable = answer.unreadable
    await setting.steps()
    assert setting.discovery.find_presence(gpu.uuid) is want
    assert (gpu.uuid in setting.discovery.gpus) == (want is not CardPresence.MISSING)
    assert (("vanished", gpu.uuid) in setting.kinds) == (want is CardPresence.MISSING)


async def test_a_card_of_another_plugin_is_listed() -> None:
    """A pod that got it before it was excluded restarts as it did."""
    setting = DiscoveryHarness(ScriptedDriver(GPU_0), DiscoverySettings(exclude=frozenset({"GPU-0"})))
    assert setting.discovery.find_presence("GPU-0") is CardPresence.UNKNOWN
    await setting.steps()
    assert setting.discovery.find_presence("GPU-0") is CardPresence.LISTED


async def test_a_gpu_that_comes_back_is_checked_first() -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1)))
    await setting.steps()
    setting.driver.present = (scripted_gpu(0),)
    await setting.steps(5)
    setting.driver.present = (scripted_gpu(0), scripted_gpu(1))
    assert await setting.steps(3) == [False, False, True]
    assert setting.health == {"GPU-0": True, "GPU-1": True}


async def test_repartitioning_drops_instances_that_no_pod_holds() -> None:
    """`a` and `b` become `c`; a pod holds `b`, whose index `c` did not take, and `a` is gone for good."""
    setting = DiscoveryHarness(ScriptedDriver(scripted_mig_instance("a", slot=0), scripted_mig_instance("b", slot=1)))
    setting.driver.cut = frozenset({"GPU-0"})
    await setting.steps()
    setting.held.add("MIG-b")
    setting.driver.present = (scripted_mig_instance("c", slot=0),)
    assert await setting.steps(2) == [True, False]
    assert [(card.index, card.uuid, card.healthy) for card in setting.discovery.cards] == [
        (100, "MIG-c", True),
        (101, "MIG-b", False),
    ]
    setting.held.clear()
    assert await setting.steps() == [True]
    assert setting.health == {"MIG-c": True}
    assert setting.kinds[2:] == [
        ("appeared", "MIG-c"),
        ("dropped", "MIG-a"),
        ("vanished", "MIG-b"),
        ("dropped", "MIG-b"),
    ]


async def test_mig_instances_at_the_same_place_do_not_share_an_index() -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_mig_instance("a", slot=0), scripted_mig_instance("b", slot=1)))
    setting.driver.cut = frozenset({"GPU-0"})
    await setting.steps()
    setting.held |= {"MIG-a", "MIG-b"}
    setting.driver.present = (scripted_mig_instance("c", slot=0), scripted_mig_instance("d", slot=1))
    await setting.steps()
    assert [(card.index, card.uuid) for card in setting.discovery.cards] == [
        (100, "MIG-c"),
        (101, "MIG-d"),
        (MAX_INDEX - 1, "MIG-b"),
        (MAX_INDEX, "MIG-a"),
    ]


async def test_gpu_switched_into_mig_mode_is_no_longer_a_card() -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), scripted_gpu(1)))
    await setting.steps()
    setting.driver.present, setting.driver.cut = (scripted_gpu(1),), frozenset({"GPU-0"})
    assert await setting.steps() == [True]
    assert setting.health == {"GPU-1": True}


async def test_mig_instances_disappear_when_the_gpu_leaves_mig_mode() -> None:
    setting = DiscoveryHarness(ScriptedDriver(scripted_mig_instance("a", slot=0)))
    setting.driver.cut = frozenset({"GPU-0"})
    await setting.steps()
    setting.driver.present, setting.driver.cut = (scripted_gpu(0),), frozenset()
    assert await setting.steps() == [True]
    assert setting.health == {"GPU-0": True}


XIDS = {
    "of a GPU": (Xid(171, "GPU-0"), {"GPU-0"}),
    "of the application": (Xid(31, "GPU-0"), set()),
    "of an unnamed GPU": (Xid(171, None), {"GPU-0", "MIG-a", "MIG-b"}),
    "of a card that is not ours": (Xid(171, "GPU-7"), set()),
    "of a GPU with all its instances": (Xid(171, "GPU-1"), {"MIG-a", "MIG-b"}),
    "of one instance": (Xid(171, "GPU-1", gpu_instance=2, compute_instance=0), {"MIG-b"}),
    "of another compute instance": (Xid(171, "GPU-1", gpu_instance=2, compute_instance=3), set()),
    "of a number that is ignored": (Xid(63, "GPU-0"), set()),
}


@pytest.mark.parametrize(("xid", "want"), XIDS.values(), ids=XIDS)
async def test_xid_makes_its_cards_unhealthy_at_once(xid: Xid, want: set[str]) -> None:
    looking = DiscoverySettings(xids=XidRules(ignored=frozenset({63})))
    parts = (scripted_mig_instance("a", slot=0, parent=1), scripted_mig_instance("b", slot=1, parent=1))
    setting = DiscoveryHarness(ScriptedDriver(scripted_gpu(0), *parts), looking)
    await setting.steps()
    setting.driver.reports.put_nowait(xid)
    assert await setting.discovery.read_xids() == bool(want)
    assert setting.discovery.unhealthy_reasons == dict.fromkeys(want, f"XID {xid.number}")
    assert await setting.steps(3) == [False, False, bool(want)]
    assert setting.discovery.unhealthy_reasons == {}


async def test_discovery_runs_until_it_is_cancelled() -> None:
    """Checks at once, then listens while checking; a driver that reports no events is still checked."""
    driver = ScriptedDriver(scripted_gpu())
    naps: asyncio.Queue[float] = asyncio.Queue()
    changes: asyncio.Queue[bool] = asyncio.Queue()

    async def nap(seconds: float) -> None:
        await naps.put(seconds)
        await asyncio.Event().wait()

    discovery = Discovery(driver, DiscoverySettings(check_seconds=7), is_card_held=lambda _: False, sleep=nap)
    running = asyncio.create_task(discovery.run(lambda: changes.put_nowait(discovery.cards[0].healthy)))
    assert await changes.get()
    driver.reports.put_nowait(Xid(79, "GPU-0"))
    assert not await changes.get()
    assert await naps.get() == 7
    driver.reports.put_nowait(FAILED)
    assert await naps.get() == 7
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_discovery_reports_changes_of_a_simulated_nvml(tmp_path: Path) -> None:
    """Eight cards; one reports XID 79, one is lost, a ninth appears: three changes, each within a look or a report."""
    with load_stub_machine(tmp_path, PROFILES["v100x8"]) as machine:
        library = NvmlDriver(call_timeout_seconds=10, pci_devices=tmp_path)
        discovery = Discovery(
            library, DiscoverySettings(check_seconds=0.05, recover_after_checks=1000), is_card_held=lambda _: False
        )
        changes: asyncio.Queue[None] = asyncio.Queue()
        running = asyncio.create_task(discovery.run(lambda: changes.put_nowait(None)))
        uuids = [gpu.uuid for gpu in machine.gpus]

        async def changed(do: Callable[[], None]) -> tuple[int, set[str]]:
            do()
            async with asyncio.timeout(10):
                await changes.get()
            return len(discovery.cards), set(discovery.unhealthy_reasons)

        assert await changed(lambda: None) == (8, set())
        assert await changed(lambda: machine.xid(uuids[2], 79)) == (8, {uuids[2]})
        assert await changed(lambda: machine.lose(uuids[5])) == (8, {uuids[2], uuids[5]})
        ninth = stub_gpus("NVIDIA L4", 23034, first=8)
        assert await changed(lambda: machine.set_gpus(machine.gpus + ninth)) == (9, {uuids[2], uuids[5]})
        assert (discovery.driver_version, discovery.gpus[ninth[0].uuid].minor) == ("615.71.09", 8)
        running.cancel()
        await asyncio.wait([running])
