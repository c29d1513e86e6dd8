"""What a place that was named is worth when its bind comes late: with soft reservations, and in the same program without them.

The scheduler asks for the next pod before it binds this one. Here every bind is held up on its way to the extender, as
volumes and permits hold it up; a slow API server would not do: what is being bound is reserved already.
`VRAMPACK_PROMISE_ROUNDS` (2) and `VRAMPACK_GANG_ROUNDS` (5) say how often, `VRAMPACK_BIND_DELAY` (0.3 s) how late.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from tests.auditor.places import find_placeable_pods
from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import count_pending_pods, get_inspect, post_bind, read_ledger_states, read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record
from tests.support.processes import choose_free_ports

ROUNDS = int(os.environ.get("VRAMPACK_PROMISE_ROUNDS", "2"))
GANG_ROUNDS = int(os.environ.get("VRAMPACK_GANG_ROUNDS", "5"))
BIND_DELAY_SECONDS = float(os.environ.get("VRAMPACK_BIND_DELAY", "0.3"))
NODES, CARDS, UNITS = 10, 8, 15
FREE = (3,) * 5 + (2,) * 8 + (1,) * 29
"""The units of all cards, and what the pods ask: what is free on 80 cards of 15 units of which 95 % are held. So each pod
has a card that it fills, if no smaller one took it."""
GANG = 8
FREE_CARDS = (3, 2, 2, 1)
"""Empty cards of each node, one for each member. The others have 7 units free, so the scheduler's own sum takes more."""
CALLS_AT_A_TIME = 8
AT_ONCE = {"gracePeriodSeconds": 0}
BIND = "/bind$"
BOUND = 'vrampack_bind_total{result="ok"}'
NAMED = re.compile(r"named pod=(\S+) node=(\S+) cards=(\S+)")

Start = Callable[..., Any]
Made = dict[str, Any]  # Any: a pod as the API server holds it, asserted where it is read


@dataclass(slots=True)
class Count:
    """What became of the pods."""

    bound: int = 0
    moved: int = 0
    """Bound, and not to the cards that were named."""
    refused: int = 0

    def __str__(self) -> str:
        return f"bound {self.bound}, on other cards than named {self.moved}, binds refused {self.refused}"


@pytest.mark.timeout(120 + 30 * ROUNDS)
@pytest.mark.parametrize("decide", ["prioritize", "filter"])
def test_soft_reservations_avoid_refused_binds_in_a_full_cluster(
    cluster: ControlPlane, extender: Start, scheduler: Start, decide: str
) -> None:
    port = choose_free_ports(1)[0]
    before = started(extender, "forget", decide, port=port)
    assert before.front
    for number in range(NODES):
        add_node(cluster, f"gpu-{number}", FREE[number::NODES])
    before.front.when("POST", BIND).delay(BIND_DELAY_SECONDS)
    scheduler()
    with assert_never_oversold(cluster):
        without = measured(cluster, before)
        before.process.stop()
        after = replace(started(extender, "remember", decide, port=port, fronted=False), front=before.front)
        with_promises = measured(cluster, after)

    sys.stdout.write(f"decide {decide}, {ROUNDS} rounds of {len(FREE)} pods\n")
    sys.stdout.write(f"  without promises: {without}\n  with promises:    {with_promises}\n")
    assert with_promises.bound == ROUNDS * len(FREE)
    assert with_promises.moved * 2 <= without.moved
    assert with_promises.refused * 2 <= without.refused
    assert without.refused > 0, "nothing was at stake"


@pytest.mark.timeout(60 + 3 * GANG_ROUNDS)
@pytest.mark.parametrize("decide", ["prioritize", "filter"])
def test_a_gang_gets_as_many_cards_as_members(
    cluster: ControlPlane, extender: Start, scheduler: Start, decide: str
) -> None:
    """All members are filtered before the first is bound, as by a scheduler that knows gangs."""
    ours = started(extender, "remember", decide)
    fragment(cluster, ours)
    scheduler()
    before = read_metric(ours, BOUND)
    for number in range(GANG_ROUNDS):
        with a_gang(cluster, ours, f"gang-{number}") as members:
            assert len({place(member) for member in members}) == GANG
    assert refused(ours) == 0
    assert read_metric(ours, BOUND) - before == GANG_ROUNDS * GANG


def test_without_soft_reservations_gang_members_are_sent_to_the_same_cards(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """What the test before this one would see if soft reservations did nothing."""
    ours = started(extender, "forget", "filter")
    fragment(cluster, ours)
    scheduler()
    with a_gang(cluster, ours, "gang"):
        assert refused(ours) > 0


def started(extender: Start, promises: str, decide: str, **options: Any) -> ExtenderProgram:  # noqa: ANN401 - passed on
    configuration = f"apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\ndecide: {decide}\n"
    command = (sys.executable, "-m", "tests.e2e.logged_reservations", promises, "serve")
    made: ExtenderProgram = extender(command=command, configuration=configuration, **options)
    return made


def add_node(cluster: ControlPlane, name: str, sizes: Sequence[int] = (UNITS,) * CARDS) -> None:
    """A node with a card of each size, in units."""
    cards = (
        published_card(index, units=units, memory_mib=units * 1024, uuid=f"{name}-{index}")
        for index, units in enumerate(sizes)
    )
    cluster.add_node(name, cards=cards_annotation(*cards))


def bind_directly(cluster: ControlPlane, ours: ExtenderProgram, node: str, units: Sequence[int]) -> None:
    """One pod after the other; no two of them fit on one card."""
    cluster.wait_until(lambda: node in {each["name"] for each in get_inspect(ours)["nodes"]}, what=f"{node} seen")
    for number, each in enumerate(units):
        pod = cluster.request_ok("POST", PODS, pod_manifest(f"held-{node}-{number}", each))
        assert post_bind(ours, pod, node) == ""


def measured(cluster: ControlPlane, ours: ExtenderProgram) -> Count:
    """Bursts of pods, each of which has a place: what became of them, and of their binds."""
    count, random = Count(), Random(5)
    before = refused(ours)
    for number in range(ROUNDS):
        names = [f"burst-{number}-{index}" for index in range(len(FREE))]
        sizes = random.sample(FREE, len(FREE))
        create(cluster, [pod_manifest(name, units) for name, units in zip(names, sizes, strict=True)])
        cluster.wait_until(
            lambda: not with_a_place(cluster),
            30,
            what=lambda: f"bound: {with_a_place(cluster)}",
            interval_seconds=0.25,
        )
        pods = [cluster.request_ok("GET", f"{PODS}/{name}") for name in names]
        bound = [pod for pod in pods if "nodeName" in pod["spec"]]
        count.bound += len(bound)
        count.moved += moved(ours, bound)
        delete_pods(cluster, ours, names)
    count.refused = int(refused(ours) - before)
    wait_until_recounted(cluster, ours)
    return count


def create(cluster: ControlPlane, pods: Sequence[Made]) -> None:
    """Several at a time, as by a controller."""
    with ThreadPoolExecutor(CALLS_AT_A_TIME) as pool:
        list(pool.map(lambda pod: cluster.request_ok("POST", PODS, pod), pods))


def refused(ours: ExtenderProgram) -> float:
    """Binds that found no card."""
    conflicts = read_metric(ours, "vrampack_bind_conflicts_total")
    assert conflicts == read_metric(ours, 'vrampack_bind_total{result="no_capacity"}')
    return conflicts


def with_a_place(cluster: ControlPlane) -> list[str]:
    pods, nodes = (cluster.request_ok("GET", f"/api/v1/{kind}")["items"] for kind in ("pods", "nodes"))
    return find_placeable_pods(pods, nodes)


def moved(ours: ExtenderProgram, bound: Iterable[Made]) -> int:
    """How many have other cards than those that were named last."""
    lines = NAMED.findall(ours.process.log_path.read_text())
    named = {uid: (node, tuple(map(int, indices.split(",")))) for uid, node, indices in lines}
    return sum(place(pod) != named[pod["metadata"]["uid"]] for pod in bound)


def place(pod: Made) -> tuple[str, tuple[int, ...]]:
    return pod["spec"]["nodeName"], tuple(card["index"] for card in read_allocation_record(pod)["cards"])


def delete_pods(cluster: ControlPlane, ours: ExtenderProgram, names: Sequence[str]) -> None:
    """Delete the pods, and wait until the extender knows."""
    with ThreadPoolExecutor(CALLS_AT_A_TIME) as pool:
        list(pool.map(lambda name: cluster.request_ok("DELETE", f"{PODS}/{name}", AT_ONCE), names))

    def list_left_pods() -> list[str]:
        return [where for where in read_ledger_states(ours) if where.partition(" ")[0] in names]

    cluster.wait_until(
        lambda: not list_left_pods() and count_pending_pods(ours) == 0, what=lambda: f"away: {list_left_pods()}"
    )


def fragment(cluster: ControlPlane, ours: ExtenderProgram) -> None:
    """Nodes with just enough empty cards for one gang."""
    for number, free in enumerate(FREE_CARDS):
        add_node(cluster, f"gpu-{number}")
        bind_directly(cluster, ours, f"gpu-{number}", [8] * (CARDS - free))


@contextmanager
def a_gang(cluster: ControlPlane, ours: ExtenderProgram, gang: str) -> Iterator[list[Made]]:
    """Its members, bound; no bind is let through before there is one of each. They are gone afterwards."""
    names = [f"{gang}-{member}" for member in range(GANG)]
    front = ours.front
    assert front
    held = front.when("POST", BIND).hold()
    create(cluster, [pod_manifest(name, UNITS) for name in names])
    front.reached(held, GANG)
    front.clear()

    def bound() -> list[Made]:
        pods = [cluster.request_ok("GET", f"{PODS}/{name}") for name in names]
        return pods if all("nodeName" in pod["spec"] for pod in pods) else []

    yield cluster.wait_until(bound, 30, what="the gang is bound")
    delete_pods(cluster, ours, names)
