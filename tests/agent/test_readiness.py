"""When the agent is ready: a new pod could start, or the node should have none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agent.agent_harness import agent_harness
from tests.support.scripted_driver import LOST
from vrampack.agent.inventory.advertisement import Advertised
from vrampack.agent.nvml.driver import UnreadableGpu
from vrampack.agent.nvml.errors import DriverError, HiddenDriverError, NoDriverError
from vrampack.agent.status.readiness import DriverState, find_unready_reason
from vrampack.cards.node import CardFacts

CARDS = (CardFacts(0, 15, 16130, "GPU-0"), CardFacts(1, 15, 16130, "GPU-1"))
BAD = tuple(replace(card, healthy=False) for card in CARDS)
FINE = DriverState("", is_absent=False, unhealthy_reasons={})
ABSENT = DriverState("no library", is_absent=True, unhealthy_reasons={})
UNREGISTERED = "not registered with kubelet"
STATES = {
    "all is well": (Advertised(CARDS, "", is_discovered=True), FINE, "", ""),
    "nothing is known yet": (Advertised(), FINE, UNREGISTERED, "the cards of this node are not known yet"),
    "and the driver is the reason": (
        Advertised(),
        DriverState("hung", is_absent=False, unhealthy_reasons={}),
        UNREGISTERED,
        "the cards of this node are not known yet: hung",
    ),
    "no driver, no cards": (Advertised((), "no library", is_discovered=True), ABSENT, UNREGISTERED, ""),
    "a driver and no cards": (Advertised((), "", is_discovered=True), FINE, UNREGISTERED, ""),
    "a driver that shows none": (
        Advertised((), "cannot be read", is_discovered=True),
        FINE,
        UNREGISTERED,
        "cannot be read",
    ),
    "kubelet does not know us": (
        Advertised(CARDS, "", is_discovered=True),
        FINE,
        UNREGISTERED,
        "not registered with kubelet",
    ),
    "something holds all cards back": (Advertised(CARDS, "too many", is_discovered=True), FINE, "", "too many"),
    "one card is unhealthy": (Advertised((CARDS[0], BAD[1]), "", is_discovered=True), FINE, "", ""),
    "all are": (
        Advertised(BAD, "", is_discovered=True),
        DriverState("", is_absent=False, unhealthy_reasons={"GPU-1": "XID 79", "GPU-0": "lost"}),
        "",
        "every card is unhealthy: GPU-0: lost, GPU-1: XID 79",
    ),
}


@pytest.mark.parametrize(("advertised", "driver", "registration", "want"), STATES.values(), ids=STATES)
def test_agent_is_ready_if_a_pod_could_start_or_none_is_expected(
    advertised: Advertised,
    driver: DriverState,
    registration: str,
    want: str,
) -> None:
    assert find_unready_reason(advertised, driver, registration_problem=registration) == want


async def test_a_back_end_that_cannot_work_here_keeps_the_agent_from_being_ready() -> None:
    """A rollout of a wrong agent.yaml stops at the first node."""
    async with agent_harness(starts=False, enforcement="kmod") as world:
        await world.launch_agent()
        await world.wait_until(lambda: "back end kmod cannot work here" in world.agent.find_unready_reason())
        await world.wait_until(lambda: world.agent.components.registration.is_registered)
        assert "back end kmod cannot work here" in world.agent.find_unready_reason()


async def test_agent_is_not_ready_and_retries_while_the_node_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cgroups, here, in which it looks for deleted pods before it registers."""
    monkeypatch.setattr("vrampack.agent.app.RESTORE_RETRY_SECONDS", 0.01)
    async with agent_harness(starts=False) as world:
        real = world.cgroups.rename(world.folder / "real")
        world.cgroups.symlink_to(world.cgroups)
        await world.launch_agent()
        await world.wait_until(lambda: "the agent cannot read the node: " in world.agent.find_unready_reason())
        world.cgroups.unlink()
        real.rename(world.cgroups)
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_unready_reason_names_the_runtime_class_when_the_driver_is_hidden() -> None:
    """The other nodes of the DaemonSet may have no card at all: they are ready."""
    async with agent_harness(starts=False) as world:
        world.driver.error = HiddenDriverError("the list of cards: NVML Shared Library Not Found", 12)
        await world.launch_agent()
        await world.wait_until(lambda: world.agent.components.advertisement.current.is_discovered)
        assert "runtimeClassName: nvidia" in world.agent.find_unready_reason()
        assert "/run/nvidia/driver" in world.agent.find_unready_reason()
        world.driver.error = NoDriverError("the list of cards: NVML Shared Library Not Found", 12)
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")


async def test_a_node_none_of_whose_cards_can_be_read_is_not_ready() -> None:
    async with agent_harness(starts=False) as world:
        world.driver.present = ()
        world.driver.unreadable = (UnreadableGpu(0, DriverError("GPU is lost", LOST)),)
        await world.launch_agent()
        await world.wait_until(lambda: world.agent.find_unready_reason() == "card at index 0: GPU is lost")


async def test_a_node_all_of_whose_cards_are_unhealthy_is_not_ready_until_one_heals() -> None:
    async with agent_harness() as world:
        world.driver.failing["GPU-0"] = DriverError("GPU is lost", LOST)
        await world.wait_until(
            lambda: world.agent.find_unready_reason() == "every card is unhealthy: GPU-0: GPU is lost"
        )
        world.driver.failing.clear()
        await world.wait_until(lambda: world.agent.find_unready_reason() == "")
