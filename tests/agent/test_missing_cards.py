"""A card that the driver does not list goes to no container: its minor or its instance numbers may be another's by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from tests.agent.agent_harness import AgentHarness, agent_harness
from tests.agent.cdi.injected_edits import cards_of, resolve
from tests.agent.pod_lifecycle import count_refusals, put_bound_pod, report_status, start_container, start_refused
from tests.fakes.kubelet.pods import KubeletPod
from tests.support.scripted_driver import scripted_gpu, scripted_mig_instance
from vrampack.agent.admission import prestart
from vrampack.agent.cdi.card_edits import CardEdits
from vrampack.agent.cdi.edits_source import EditsSource
from vrampack.agent.nvml.driver import Gpu
from vrampack.agent.nvml.errors import DriverHungError

UIDS = {name: f"1d3a9a10-0000-4000-8000-00000000000{at}" for at, name in enumerate(("running", "waiting", "later"))}
WHOLE = scripted_gpu(0)
EXCHANGED = replace(scripted_gpu(9), index=0, minor=0)
"""Another board in the place of GPU-0: the kernel gives it the minor that is free."""
OTHER = scripted_gpu(1)
PARTS = (scripted_mig_instance("a", slot=0), scripted_mig_instance("c", slot=1))
SAME_NUMBERS = (scripted_mig_instance("b", slot=0), scripted_mig_instance("c", slot=1))
CAPABILITIES = "".join(f"gpu0/gi{gi}/access {gi * 10}\ngpu0/gi{gi}/ci0/access {gi * 10 + 1}\n" for gi in (1, 2))


@dataclass(frozen=True)
class Change:
    """What the driver lists before and after; the pods hold the first card of the first list."""

    before: tuple[Gpu, ...]
    after: tuple[Gpu, ...]
    cut_before: frozenset[str] = frozenset()
    cut_after: frozenset[str] = frozenset()
    enforcement: str = "auto"
    has_cdi: bool = True


CUT = frozenset({"GPU-0"})
CHANGES = {
    "its board was exchanged": Change((WHOLE, OTHER), (EXCHANGED, OTHER)),
    "MIG was switched off": Change(PARTS, (WHOLE,), CUT),
    "it was cut into the same numbers": Change(PARTS, SAME_NUMBERS, CUT, CUT),
    "its board was exchanged, by environment and kernel module": Change(
        (WHOLE, OTHER), (EXCHANGED, OTHER), enforcement="kmod", has_cdi=False
    ),
}


def add_pod(world: AgentHarness, name: str, uuid: str) -> KubeletPod:
    """A pod with two units of that card."""
    node = world.read_node()
    cards = tuple(replace(card, uuid=gpu.uuid) for card, gpu in zip(node.cards, world.driver.present, strict=True))
    at = next(card.index for card in cards if card.uuid == uuid)
    pod = put_bound_pod(world, name, cards=[at], units=2, uid=UIDS[name], room=replace(node, cards=cards))
    world.make_cgroup(pod)
    return pod


@asynccontextmanager
async def a_node(change: Change) -> AsyncIterator[AgentHarness]:
    async with agent_harness(starts=False, enforcement=change.enforcement) as world:
        world.driver.present, world.driver.cut = change.before, change.cut_before
        capabilities = world.proc / "driver" / "nvidia-caps" / "mig-minors"
        capabilities.parent.mkdir(parents=True)
        capabilities.write_text(CAPABILITIES)
        if change.enforcement == "kmod":
            world.load_simulated_module()
        if change.has_cdi:
            await world.add_runtime()
        await world.start_agent()
        yield world


async def put_pods(world: AgentHarness, uuid: str) -> tuple[KubeletPod, KubeletPod]:
    """One that runs, and one whose image is still being pulled."""
    running, waiting = add_pod(world, "running", uuid), add_pod(world, "waiting", uuid)
    for pod in (running, waiting):
        assert await world.kubelet.admit(pod), pod.message
    await start_container(world, running)
    report_status(world, running)
    world.kubelet.exit(running, "main")
    return running, waiting


async def wait_for_cards(world: AgentHarness, uuids: Collection[str]) -> None:
    await world.wait_until(lambda: world.read_card_health().keys() >= set(uuids))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_card_that_is_gone_goes_to_no_container(change: Change) -> None:
    """Neither at a first start nor at a restart, until the driver lists it again."""
    gone = change.before[0].uuid
    async with a_node(change) as world:
        pods = await put_pods(world, gone)
        world.driver.present, world.driver.cut = change.after, change.cut_after
        await wait_for_cards(world, {gpu.uuid for gpu in change.after})
        for pod in pods:
            assert f"card {gone} is no longer on this node" in await start_refused(world, pod)
        assert count_refusals(world, "unknown_card") == 2
        world.driver.present, world.driver.cut = change.before, change.cut_before
        await world.wait_until(lambda: world.read_card_health()[gone])
        for pod in pods:
            await start_container(world, pod)


async def test_a_card_that_is_exchanged_while_its_spec_is_made_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-ctk may run for 20 s, and the driver lists its cards every 5."""
    async with a_node(CHANGES["its board was exchanged"]) as world:
        pod = add_pod(world, "waiting", "GPU-0")
        find_edits = EditsSource.find_edits

        async def exchange_board(source: EditsSource, gpu: Gpu) -> CardEdits:
            world.driver.present = (EXCHANGED, OTHER)
            await wait_for_cards(world, {"GPU-9"})
            return await find_edits(source, gpu)

        monkeypatch.setattr(EditsSource, "find_edits", exchange_board)
        assert "card GPU-0 changed while its spec was made" in await start_refused(world, pod)


async def test_the_kernel_module_gives_the_minor_to_the_card_that_has_it_now() -> None:
    async with a_node(CHANGES["its board was exchanged, by environment and kernel module"]) as world:
        _, waiting = await put_pods(world, "GPU-0")
        world.driver.present = (EXCHANGED, OTHER)
        await wait_for_cards(world, {"GPU-9"})
        later = add_pod(world, "later", "GPU-9")
        assert await world.kubelet.admit(later), later.message
        await start_refused(world, waiting)
        await start_container(world, later)
        limits = world.module.limits()
        assert limits[UIDS["later"]] == {0: 2150}  # 16130 * 2 / 15
        assert UIDS["waiting"] not in limits


async def test_a_start_while_the_driver_lists_no_cards_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first start is refused at once; a restart waits for a list, and is refused when there is none for too long."""
    monkeypatch.setattr(prestart, "LIST_WAIT_SECONDS", 0.05)
    async with a_node(CHANGES["its board was exchanged"]) as world:
        running, waiting = await put_pods(world, "GPU-0")
        world.driver.error = DriverHungError("the list of cards: no answer from the driver in 10 s")
        await world.wait_until(lambda: bool(world.agent.components.discovery.problem))
        for pod in (running, waiting):
            text = "the driver does not say now whether card GPU-0 is still on this node"
            assert text in await start_refused(world, pod)
        assert count_refusals(world, "driver") == 2
        monkeypatch.setattr(prestart, "LIST_WAIT_SECONDS", 20)
        restart = asyncio.create_task(start_container(world, running))
        looks = world.driver.looks
        await world.wait_until(lambda: world.driver.looks > looks + 1)
        assert not restart.done()
        world.driver.error = None
        assert cards_of(await resolve(world.runtimes[0], await restart)) == ["/dev/nvidia0"]
        await start_container(world, waiting)
