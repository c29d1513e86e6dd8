"""The library in front of NVIDIA's own allocator: programs that call through libc, and nvidia-smi, see a card of 4301 MiB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.driver.real_driver import AGENT, LIMIT_MIB, SHIPPED_LIBRARY, SMI, RealDriver, read_smi
from tests.machine.program import GuestStart
from tests.machine.python import ENVIRONMENT, PYTHON
from tests.shim.kmod.world import BudgetPlace
from tests.support.limit_cases import CASES, REFUSED, LimitCase

APP, APP_MIB = "app-linked", 3193
AGENT_FOLDER = "/var/lib/vrampack"
LIBRARY = f"{AGENT_FOLDER}/preload/libvrampack.so"
START_SECONDS = 120
"""Python starts slowly without KVM."""


@pytest.fixture(scope="session")
def agent(opened_machine: RealDriver) -> Iterator[None]:
    """With the product's own accounting: every caller is one container of 4301 MiB."""
    machine = opened_machine.machine
    for folder in ("/var", "/var/lib", AGENT_FOLDER):
        with suppress(FileExistsError):
            machine.mkdir(folder)
    words = ("-m", AGENT, AGENT_FOLDER, SHIPPED_LIBRARY, opened_machine.which.version)
    with machine.running(PYTHON, *words, start=GuestStart(env=ENVIRONMENT)) as started:
        started.wait_for_line("begun", timeout=START_SECONDS)
        yield


@pytest.fixture
def container(card: RealDriver, agent: None) -> BudgetPlace:
    """Our module is not loaded."""
    return BudgetPlace(card.machine, GuestStart(env={"RM_BRANCH": card.which.branch, "LD_PRELOAD": LIBRARY}))


@pytest.mark.parametrize("case", [each for each in CASES if each.program == "app"], ids=str)
def test_a_program_linked_to_libc_gets_the_same_answers_as_from_the_simulated_driver(
    container: BudgetPlace, case: LimitCase
) -> None:
    assert container.run(APP, *case.arguments).lines == list(case.said)


def test_s1_and_s2_hold_with_the_library(container: BudgetPlace, card: RealDriver) -> None:
    """nvidia-smi shows the limit inside, and the card on the node; the greedy program is refused, the other one goes on."""
    on_node = BudgetPlace(card.machine, GuestStart())
    at_rest, total = read_smi(on_node)
    with container.running(APP, f"{APP_MIB}", "--hold") as first:
        first.wait_for_line("holding")
        assert read_smi(container) == (APP_MIB, LIMIT_MIB)
        assert container.run(APP, "1109").lines == [REFUSED]
        assert container.run(APP, "1108").lines == ["allocated 1108 MiB"]
        assert read_smi(on_node) == (at_rest + APP_MIB, total)
        assert not first.has_ended
    assert "4301MiB" not in on_node.run(SMI).out


def test_a_static_program_escapes_the_library(container: BudgetPlace, card: RealDriver) -> None:
    """As docs/preload.md says of static programs: the driver gives it all that it asks for."""
    assert container.run("app", "6144").lines == ["allocated 6144 MiB"]
