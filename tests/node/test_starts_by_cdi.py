"""Starts of containers on eight cards: many of them, and some while the programs around them die.

None may have another card than its record, and none may start unasked. How long the agent takes, and its memory, is
printed; with `VRAMPACK_CARD_STARTS=1000` this is part of `make soak`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from signal import SIGCONT

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES, StubGpu
from tests.node.card_agreement import inspect_holdings, list_container_starts
from tests.node.containerd_release import BUILT_2
from tests.node.gpus import with_gpus
from tests.node.injected_cards import assert_cards_injected, list_own_specs, log_own_cards, read_logged_cards
from tests.node.kubelet import DEVICE_PLUGINS
from tests.node.metrics import sum_metric
from tests.node.node import LiveNode, has_ready_condition
from tests.node.nvidia_spec import SPEC_FOLDER
from tests.node.podresources import list_pod_resources
from tests.node.pods import RESOURCE, a_pod, a_replica_set, a_set, with_init_containers
from tests.node.start_timing import StartTimes, describe_alone, describe_crowd, read_memory_mb

STARTS = int(os.environ.get("VRAMPACK_CARD_STARTS", "60"))
pytestmark = [pytest.mark.containerd(BUILT_2), pytest.mark.timeout(300 + 5 * STARTS)]

AT_ONCE = 20
"""Of 4 units each on 8 cards of 15: three fit on a card, so 24 places."""
FOREIGN_SPECS = 200
GOAL_MB = 95


@pytest.fixture(scope="module")
def eight(node: LiveNode, cards: FakeNvmlMachine) -> Iterator[dict[str, str]]:
    """Eight cards: the node of each, by uuid."""
    gpus: tuple[StubGpu, ...] = PROFILES["v100x8"]
    with with_gpus(node, cards, gpus):
        yield {gpu.uuid: f"nvidia{gpu.minor}" for gpu in gpus}


@contextmanager
def foreign_specs(count: int) -> Iterator[None]:
    """So many specs of somebody else's devices in the folder."""
    made = [SPEC_FOLDER / f"foreign-{number}.json" for number in range(count)]
    for number, path in enumerate(made):
        device = {"name": "one", "containerEdits": {"env": [f"FOREIGN={number}"]}}
        document = {"cdiVersion": "0.5.0", "kind": f"example.com/foreign{number}", "devices": [device]}
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(json.dumps(document))
        unfinished.rename(path)
    try:
        yield
    finally:
        for path in made:
            path.unlink()


def assert_each_had_its_card(node: LiveNode, eight: dict[str, str], count: int) -> None:
    """So many pods live; every start of their containers had the card of its record, and no other."""
    held = inspect_holdings(node)
    assert len(held) == count
    for name, uuid in held:
        node.wait(partial(read_logged_cards, name), what=f"{name} says its cards")
        assert read_logged_cards(name) == [[eight[uuid]]]


def start_alone(node: LiveNode, eight: dict[str, str], wave: int) -> list[StartTimes]:
    """One after another, on cards that fill up."""
    taken, before = [], StartTimes.read(node)
    for number in range(AT_ONCE):
        name = f"alone-{wave}-{number}"
        node.apply(log_own_cards(a_pod(name, main=4)))
        node.wait(partial(read_logged_cards, name), what=lambda: node.describe(""))
        now = StartTimes.read(node)
        once, before = now.since(before), now
        if once.starts == 1:
            taken.append(once)
    assert_each_had_its_card(node, eight, AT_ONCE)
    node.clear()
    return taken


def start_at_once(node: LiveNode, eight: dict[str, str], waves: int) -> StartTimes:
    """Waves of pods that are made together."""
    before = StartTimes.read(node)
    for _ in range(waves):
        node.apply(log_own_cards(a_replica_set("crowd", AT_ONCE, main=4)))

        def all_run() -> bool:
            pods = node.list_objects("pods", "-l", "name=crowd")
            return len(pods) == AT_ONCE and all(has_ready_condition(pod) for pod in pods)

        node.wait(all_run, 180, what=lambda: node.kubectl("get", "pods", "-o", "wide").stdout)
        assert_each_had_its_card(node, eight, AT_ONCE)
        node.clear()
    return StartTimes.read(node).since(before)


def test_every_start_is_checked_by_the_agent_and_gets_its_own_card(
    node: LiveNode, eight: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    waves = -(-STARTS // (3 * AT_ONCE))
    counters = ("vrampack_agent_starts_total", "vrampack_agent_cdi_specs_total")
    asked = {name: sum_metric(node, "vrampack-agent", name) for name in counters}

    alone = [each for wave in range(waves) for each in start_alone(node, eight, wave)]
    beside_few = start_at_once(node, eight, waves)
    with foreign_specs(FOREIGN_SPECS):
        beside_many = start_at_once(node, eight, waves)

    late = sum_metric(node, "vrampack-agent", "vrampack_agent_cdi_specs_total", result="timeout")
    memory_mb = read_memory_mb(node)
    lines = [
        describe_alone(alone),
        describe_crowd(f"{AT_ONCE} at once, beside few specs", beside_few),
        describe_crowd(f"{AT_ONCE} at once, beside {FOREIGN_SPECS}", beside_many),
        f"specs not read in time: {late:.0f}; the agent has {memory_mb:.1f} MB\n",
    ]
    with capsys.disabled():
        sys.stdout.write("\n" + "".join(lines))

    for name in counters:
        assert sum_metric(node, "vrampack-agent", name) - asked[name] >= 3 * waves * AT_ONCE
    assert sum_metric(node, "vrampack-agent", "vrampack_agent_unfenced_starts_total") == 0
    assert memory_mb <= GOAL_MB
    node.wait(lambda: not list_own_specs(), what="no spec is needed any more")


def test_init_and_sidecar_containers_of_equal_size_get_the_card_of_their_pod(
    node: LiveNode, eight: dict[str, str]
) -> None:
    """Kubelet gives the first and the last the same devices; each has a name of its own for CDI."""
    pods = [log_own_cards(with_init_containers(a_pod(f"mixed-{number}", main=4))) for number in range(3)]
    node.apply(*pods)
    names = [pod["metadata"]["name"] for pod in pods]
    node.wait(lambda: all(has_ready_condition(node.get("pod", name)) for name in names), what=lambda: node.describe(""))
    held = inspect_holdings(node)
    assert sorted(held.values()) == [8, 8, 8]
    for name, uuid in held:
        wanted = [[eight[uuid]]] * 3
        node.wait(partial(has_logged, name, wanted), what=f"{name}: {wanted}")


def lose_agent(node: LiveNode) -> None:
    node.kill_agent()
    node.containerd.process.signal(SIGCONT)


def lose_containerd(node: LiveNode) -> None:
    node.restart_containerd()


def lose_kubelet(node: LiveNode) -> None:
    node.kill_kubelet()
    node.containerd.process.signal(SIGCONT)
    node.start_kubelet()


@pytest.mark.parametrize("lose", [lose_agent, lose_containerd, lose_kubelet])
def test_no_container_gets_another_card_when_a_program_of_the_node_dies(
    node: LiveNode, eight: dict[str, str], lose: Callable[[LiveNode], object]
) -> None:
    """One container runs; one has its spec and is not made yet; one has its devices and was not asked about.

    A pod that kubelet meets again before it knows the plugin fails for good; its set makes another.
    """
    running, written, allocated = names = [
        f"{moment}-{lose.__name__.removeprefix('lose_')}" for moment in ("running", "written", "allocated")
    ]
    node.apply(*(log_own_cards(a_set(name, main=4)) for name in (running, written)))
    for name in (running, written):
        node.wait_ready(f"name={name}")
    was = list_container_starts(node, f"{running}-0")
    node.wait(lambda: not list_own_specs(), what="their specs are gone")

    with ExitStack() as paused:
        with node.stopped_agent():
            node.kubectl("exec", f"{written}-0", "--", "kill", "1", check=False)
            asked = node.wait(count_unread_bytes, what="kubelet asks whether it may start again")
            node.apply(log_own_cards(a_set(allocated, main=4)))
            node.wait(lambda: count_unread_bytes() > asked, what="kubelet asks for devices")
            paused.enter_context(node.containerd.process.paused())
        node.wait(lambda: list_own_specs() and has_devices(f"{allocated}-0"), what="both are answered")
        lose(node)

    for name in names:
        node.wait_ready(f"name={name}", timeout_seconds=90)
    assert list_container_starts(node, f"{running}-0") == was
    for name in names:
        assert_cards_injected(
            node, f"{name}-0", {uuid: int(card.removeprefix("nvidia")) for uuid, card in eight.items()}
        )
        assert {len(cards) for cards in read_logged_cards(f"{name}-0")} == {1}
    node.wait(lambda: not list_own_specs(), what="no spec is needed any more")


def has_logged(name: str, cards: list[list[str]]) -> bool:
    return read_logged_cards(name) == cards


def has_devices(name: str) -> bool:
    return any(each.pod == name for each in list_pod_resources(RESOURCE))


def count_unread_bytes() -> int:
    """What kubelet has sent to the agent, which has not read it."""
    lines = subprocess.run(["ss", "-xHn"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(int(line.split()[2]) for line in lines if f"{DEVICE_PLUGINS}/vrampack-" in line and "LISTEN" not in line)
