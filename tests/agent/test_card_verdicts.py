"""Verdicts on cards: what a whole agent writes of them, reads back, and accepts as a repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.agent_harness import CARDS, NODE, V100_MIB, AgentHarness, agent_harness
from tests.fakes.nvml.machine import FakeCondition
from tests.fakes.nvml.profiles import PROFILES
from tests.support.nvml_stub import load_stub_machine
from tests.support.scripted_driver import ScriptedDriver, scripted_gpu, scripted_mig_instance
from vrampack.agent.cluster import cards_condition
from vrampack.agent.inventory.discovery import Discovery
from vrampack.agent.inventory.discovery_settings import DiscoverySettings
from vrampack.agent.inventory.health import CardHealth
from vrampack.agent.inventory.verdict_book import VerdictBook
from vrampack.agent.nvml.driver import GpuCondition, Xid
from vrampack.agent.nvml.errors import DriverError
from vrampack.agent.nvml.nvml_driver import NvmlDriver
from vrampack.cards.card_verdicts import CardHeal, StoredVerdict, read_stored_verdicts, write_heals
from vrampack.cards.node import CardFacts, CardVerdict
from vrampack.cards.node_annotations import read_node, write_cards

PENDING = GpuCondition(is_remap_pending=True, is_remap_failed=False)
REMAPPED = GpuCondition(is_remap_pending=False, is_remap_failed=False)
HEALED = "vrampack.dev/healed-cards"
CONDITION = "VrampackCardsHealthy"
TWO = (V100_MIB, V100_MIB)
ROW = "a row of its memory is waiting to be remapped: drain the card and reset the GPU"


def published(world: AgentHarness, uuid: str = "GPU-0") -> dict[str, object]:
    """What the node publishes about the card."""
    cards = json.loads(world.read_annotation() or '{"cards":[]}')["cards"]
    return next((card for card in cards if card["uuid"] == uuid), {})


def read_condition(world: AgentHarness) -> dict[str, str]:
    conditions = world.api.get("nodes", NODE).get("status", {}).get("conditions") or []
    (found,) = [each for each in conditions if each["type"] == CONDITION] or [{}]
    return {key: found.get(key, "") for key in ("status", "reason", "message")}


def heal(world: AgentHarness, waived: tuple[str, ...] = ()) -> None:
    verdict = published(world)["verdict"]
    assert isinstance(verdict, dict)
    text = write_heals({"GPU-0": CardHeal(verdict["since"], waived)})
    world.api.patch("nodes", NODE, {"metadata": {"annotations": {HEALED: text}}})


def list_pod_events(world: AgentHarness) -> list[tuple[str, str]]:
    """Which pods were told of their sick card, and what."""
    told = [each for each in world.api.list_events() if each["reason"] == "GPUMemoryOnUnhealthyCard"]
    return [(each["involvedObject"]["uid"], each["message"]) for each in told]


async def looked(world: AgentHarness) -> None:
    """Wait for several checks of the cards."""
    seen = world.driver.looks
    await world.wait_until(lambda: world.driver.looks > seen + 6)


async def test_card_with_a_pending_remap_stays_out_until_nvml_reports_it_done() -> None:
    """A restarted agent that gets no answer from NVML keeps the verdict; silence is no repair."""
    async with agent_harness(*TWO) as world:
        world.driver.conditions["GPU-0"] = PENDING
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False, "GPU-1": True})
        assert published(world)["reason"] == ROW
        told = published(world)["verdict"]
        await world.kill_agent()
        del world.driver.conditions["GPU-0"]
        await world.start_agent()
        await looked(world)
        assert (published(world)["verdict"], world.read_card_health()["GPU-0"]) == (told, False)
        world.driver.conditions["GPU-0"] = REMAPPED
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True, "GPU-1": True})
        assert "verdict" not in published(world)


async def test_a_restarted_agent_never_offers_a_card_that_is_out() -> None:
    """Not for one moment: kubelet gets its devices as unhealthy from the first list on."""
    async with agent_harness(*TWO) as world:
        world.driver.reports.put_nowait(Xid(119, "GPU-0"))
        await world.wait_until(lambda: not world.read_card_health()["GPU-0"])
        await world.kill_agent()
        before = world.read_annotation()
        await world.start_agent()
        await looked(world)
        assert world.read_annotation() == before
        assert {each.partition("::")[0] for each in world.kubelet.healthy_ids("aliyun.com/gpu-mem")} == {"GPU-1"}


async def test_operator_can_heal_a_card_without_evidence_of_repair() -> None:
    async with agent_harness() as world:
        world.driver.reports.put_nowait(Xid(119, "GPU-0"))
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        await looked(world)
        assert published(world)["reason"] == "XID 119: reset the GPU"
        heal(world)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        assert "GPUMemoryCardRecovered" in [event["reason"] for event in world.api.list_events()]
        text = write_heals({"GPU-0": CardHeal("2026-01-01T00:00:00Z")})  # of an earlier verdict
        world.api.patch("nodes", NODE, {"metadata": {"annotations": {HEALED: text}}})
        world.driver.reports.put_nowait(Xid(119, "GPU-0"))
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        await looked(world)
        assert world.read_card_health() == {"GPU-0": False}


async def test_nvml_finding_blocks_a_heal_until_it_is_waived() -> None:
    async with agent_harness() as world:
        world.driver.conditions["GPU-0"] = GpuCondition(is_remap_pending=False, is_remap_failed=True)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})
        heal(world)
        await looked(world)
        assert world.read_card_health() == {"GPU-0": False}
        heal(world, waived=("remap-failed",))
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True})
        world.driver.conditions["GPU-0"] = PENDING  # another cause than the one that was overridden
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False})


async def test_a_card_returns_once_nvml_requests_no_action_for_it() -> None:
    """Without any XID; silence of a restarted agent's NVML is no repair here either."""
    async with agent_harness(*TWO) as world:
        world.driver.conditions["GPU-0"] = GpuCondition(recovery_action=1)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": False, "GPU-1": True})
        assert published(world)["reason"] == "NVML asks for recovery action 1: reset the GPU"
        await world.kill_agent()
        del world.driver.conditions["GPU-0"]
        await world.start_agent()
        await looked(world)
        assert world.read_card_health() == {"GPU-0": False, "GPU-1": True}
        world.driver.conditions["GPU-0"] = GpuCondition(recovery_action=0)
        await world.wait_until(lambda: world.read_card_health() == {"GPU-0": True, "GPU-1": True})


async def test_the_condition_is_written_when_it_changes() -> None:
    async with agent_harness(*TWO) as world:
        await world.wait_until(lambda: read_condition(world)["status"] == "True")
        world.driver.conditions["GPU-0"] = PENDING
        await world.wait_until(lambda: read_condition(world)["status"] == "False")
        assert read_condition(world) == {
            "status": "False",
            "reason": "CardUnhealthy",
            "message": f"card 0 (GPU-0): {ROW}",
        }
        await looked(world)
        assert world.read_metric("vrampack_agent_condition_writes_total") == 2
        await world.kill_agent()
        await world.start_agent()
        await looked(world)
        assert world.read_metric("vrampack_agent_condition_writes_total") == 0


async def test_a_removed_condition_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards_condition, "REVIEW_SECONDS", 0.2)
    async with agent_harness(*TWO) as world:
        await world.wait_until(lambda: read_condition(world)["status"] == "True")
        world.api.patch("nodes", NODE, {"status": {"conditions": []}}, is_status=True)
        await world.wait_until(lambda: read_condition(world)["status"] == "True")


async def test_pods_on_a_sick_card_get_events_and_are_listed_for_eviction() -> None:
    health = {"check_seconds": 0.1, "evict": {"pods": 1}}
    async with agent_harness(*TWO, health=health) as world:
        pod = world.add_bound_pod("a", card=0)
        world.add_bound_pod("b", card=1)
        world.driver.conditions["GPU-0"] = PENDING
        await world.wait_until(
            lambda: world.read_metric("vrampack_agent_unhealthy_card_pods", node=NODE, UUID="GPU-0", gpu="0") == 1
        )
        told = [(pod.uid, f"card GPU-0 of this pod is unhealthy: {ROW}")]
        await world.wait_until(lambda: list_pod_events(world) == told)
        await world.wait_until(lambda: world.read_annotation("vrampack.dev/refused") is not None)
        named = json.loads(world.read_annotation("vrampack.dev/refused") or "{}")["pods"]
        assert named == {pod.uid: {"reason": "card_unhealthy"}}


def a_discovery(driver: ScriptedDriver, book: VerdictBook) -> Discovery:
    async def never(_: float) -> None:
        raise AssertionError("a step does not sleep")

    settings = DiscoverySettings(recover_after_checks=1)
    return Discovery(driver, settings, is_card_held=lambda _: False, verdicts=book, sleep=never)


async def test_a_verdict_is_kept_for_an_absent_card() -> None:
    """The GPU is gone, the agent restarts twice, the GPU is back: still out. A reboot is evidence for XID 79."""
    driver = ScriptedDriver(scripted_gpu(0), scripted_gpu(1))
    first = VerdictBook(boot="boot-1")
    discovery = a_discovery(driver, first)
    await discovery.refresh_cards()
    driver.reports.put_nowait(Xid(79, "GPU-0"))
    await discovery.read_xids()
    text = write_cards(discovery.cards, unit_mib=1024, absent=first.absent)
    driver.present = (scripted_gpu(1),)
    for boot, health in (("boot-1", {}), ("boot-1", {"GPU-0": False}), ("boot-2", {"GPU-0": True})):
        driver.present = (*([scripted_gpu(0)] if health else []), scripted_gpu(1))
        book = VerdictBook(boot=boot)
        book.restore(read_stored_verdicts(text))
        discovery = a_discovery(driver, book)
        await discovery.refresh_cards()
        assert {card.uuid: card.healthy for card in discovery.cards} == {**health, "GPU-1": True}
        text = write_cards(discovery.cards, unit_mib=1024, absent=book.absent)
    assert "verdict" not in text


async def test_repartitioning_keeps_the_verdict() -> None:
    """GPU-0 is out, becomes two instances, and a whole card again."""
    driver = ScriptedDriver(scripted_gpu(0))
    discovery = a_discovery(driver, VerdictBook(boot="boot-1"))
    await discovery.refresh_cards()
    driver.reports.put_nowait(Xid(119, "GPU-0"))
    await discovery.read_xids()
    driver.present, driver.cut = (), frozenset({"GPU-0"})
    await discovery.refresh_cards()
    driver.present = (scripted_mig_instance("a", slot=0), scripted_mig_instance("b", slot=1))
    await discovery.refresh_cards()
    assert {card.uuid: card.healthy for card in discovery.cards} == {"MIG-a": False, "MIG-b": False}
    driver.present, driver.cut = (scripted_gpu(0),), frozenset()
    await discovery.refresh_cards()
    assert [(card.uuid, card.reason) for card in discovery.cards] == [("GPU-0", "XID 119: reset the GPU")]


@pytest.mark.parametrize("is_healed", [True, False])
async def test_a_heal_of_an_instance_that_is_gone_outlasts_a_restart(is_healed: bool) -> None:  # noqa: FBT001
    """The Node still shows the verdict to the next agent, which finds the whole GPU in place of the instance."""
    verdict = CardVerdict("xid-54", "human", since="2026-11-23T10:00:00Z")
    book = VerdictBook()
    book.follow_node(lambda: {"MIG-a": CardHeal(verdict.since)} if is_healed else {})
    book.restore([StoredVerdict("MIG-a", "GPU-0", "XID 54", verdict)])
    discovery = a_discovery(ScriptedDriver(scripted_gpu(0)), book)
    await discovery.refresh_cards()
    assert [card.healthy for card in discovery.cards] == [is_healed]


@pytest.mark.parametrize("whole_at", ["2026-11-23T11:00:00Z", "2026-11-23T09:30:00Z"])
def test_the_latest_heal_of_an_instance_and_of_its_gpu_counts(whole_at: str) -> None:
    verdict = CardVerdict("xid-54", "human", since="2026-11-23T10:00:00Z")
    book = VerdictBook()
    book.follow_node(lambda: {"MIG-a": CardHeal("2026-11-23T09:00:00Z"), "GPU-0": CardHeal(whole_at)})
    health = CardHealth().mark_out("XID 54", verdict)
    assert book.is_repaired(scripted_mig_instance("a", slot=0), health, GpuCondition()) is (whole_at > verdict.since)


async def test_nvml_decides_when_it_reports_the_action_for_an_xid() -> None:
    """XID 48 under driver 615 on a GPU that needs no reset: out, and back after clean checks."""
    driver = ScriptedDriver(scripted_gpu(0))
    driver.conditions["GPU-0"] = GpuCondition(recovery_action=0)
    discovery = a_discovery(driver, VerdictBook(boot="boot-1"))
    await discovery.refresh_cards()
    driver.reports.put_nowait(Xid(48, "GPU-0"))
    await discovery.read_xids()
    assert not discovery.cards[0].healthy
    driver.conditions["GPU-0"] = GpuCondition(recovery_action=1)
    await discovery.refresh_cards()
    assert not discovery.cards[0].healthy
    driver.conditions["GPU-0"] = GpuCondition(recovery_action=0)
    await discovery.refresh_cards()
    assert discovery.cards[0].healthy


async def test_a_card_that_fails_its_check_is_not_repaired() -> None:
    driver = ScriptedDriver(scripted_gpu(0))
    driver.conditions["GPU-0"] = PENDING
    discovery = a_discovery(driver, VerdictBook(boot="boot-1"))
    await discovery.refresh_cards()
    driver.conditions["GPU-0"], driver.failing["GPU-0"] = REMAPPED, DriverError("Unknown Error", 999)
    await discovery.refresh_cards()
    assert not discovery.cards[0].healthy


ODD = {
    "no JSON": "{",
    "a list": "[]",
    "cards are a text": '{"cards":"all"}',
    "a verdict is a number": '{"cards":[{"uuid":"GPU-0","verdict":7}]}',
    "an action of a later version": '{"absent":[{"uuid":"GPU-0","verdict":{"cause":"c","action":"melt","since":"2026-11-23T10:00:00Z"}}]}',
    "a moment that is none": '{"absent":[{"uuid":"GPU-0","verdict":{"cause":"c","action":"reset","since":"soon"}}]}',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_unreadable_verdicts_are_ignored(text: str) -> None:
    assert read_stored_verdicts(text) == ()


def test_reason_is_shortened_to_one_line() -> None:
    card = CardFacts(0, 15, 16130, uuid="GPU-9", healthy=False, reason="lost\n\x1b[2J" + 300 * "x")
    (read,) = read_node("n", {CARDS: write_cards([card], unit_mib=1024)}, {}, unit_mib=1024).facts.cards
    assert read.reason == "lost  [2J" + 191 * "x"


def test_healthy_card_is_written_without_a_reason_or_absent_list() -> None:
    text = write_cards([CardFacts(0, 15, 16130, uuid="GPU-9")], unit_mib=1024)
    assert "absent" not in text
    assert "reason" not in text


CONDITIONS = {
    "nothing is supported": (FakeCondition(), GpuCondition()),
    "all is well": (FakeCondition(0, 0, 0, 0, 0), GpuCondition(0, False, False, False, 0)),  # noqa: FBT003
    "all is ill": (FakeCondition(2, 1, 1, 1, 3), GpuCondition(2, True, True, True, 3)),  # noqa: FBT003
    "one call is not supported": (FakeCondition(0, -1, -1, 0, -1), GpuCondition(0, None, None, False, None)),  # noqa: FBT003
}


@pytest.mark.parametrize(("said", "want"), CONDITIONS.values(), ids=CONDITIONS)
async def test_the_condition_of_a_gpu_is_read_from_nvml(
    tmp_path: Path, said: FakeCondition, want: GpuCondition
) -> None:
    with load_stub_machine(tmp_path, PROFILES["t4"]) as machine:
        uuid = machine.gpus[0].uuid
        machine.set_condition(uuid, said)
        assert await NvmlDriver(call_timeout_seconds=5).read_condition(uuid) == want
