"""A pod whose volume is still to be made keeps its card: the scheduler binds it only after the wait, seconds to minutes later.

The provisioner is the test: it makes a volume when told to, for the node that the scheduler chose. Where the scheduler's gate
NominatedNodeNameForExpectation is on, the API names that node meanwhile; where it is off, and before 1.35, nothing does.

`VRAMPACK_HOLD_KILLS` says how many parts are killed while pods wait (3), `VRAMPACK_SEED` repeats a run.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.state.soft_reservations import SOFT_RESERVATION_SECONDS
from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.extender_pairs import calling, start_two_extenders
from tests.e2e.kills import kill_running
from tests.e2e.late_provisioner import LateProvisioner
from tests.e2e.part_kills import UNELECTED, MortalParts, draw_parts
from tests.e2e.pod_placements import list_places, read_refusal, wait_until_bound
from tests.e2e.release_shape import start_release
from tests.e2e.verb_calls import read_ledger_states
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import LOOPBACK

GATE = "--feature-gates=NominatedNodeNameForExpectation={}"
GATE_OFF = [GATE.format("false")]
EVENTS = "/api/v1/namespaces/default/events"
UNITS = 16
OUR_POD_WATCH = r"/pods\?.*watch"
AT_ONCE = {"gracePeriodSeconds": 0}

TRIALS = int(os.environ.get("VRAMPACK_HOLD_KILLS", "3"))
SETTLED_SECONDS = 60
"""A scheduler that found no API server, or no extender, tries a pod again after 10 s at most."""

SCALE = int(os.environ.get("VRAMPACK_HOLDS_SCALE", "1"))
"""`make soak` has a larger cluster with more pods."""
BATCHES, BATCH, WITH_CLAIM = 6, 15 * SCALE, 30 * SCALE
"""90 pods, a third of them with a claim. They ask for 620 units."""
NODES, CARDS = 8 * SCALE, 4
"""512 units."""
LATE_BATCHES = 2
"""So many batches later a volume is there."""

Start = Callable[..., Any]
Pod = dict[str, Any]  # Any: a pod as the API server holds it, asserted where it is read


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own: of the release that `VRAMPACK_KUBERNETES` names."""
    with start_release(tmp_path_factory.mktemp("holds")) as running:
        yield running


@pytest.fixture
def provisioner(cluster: ControlPlane) -> Iterator[LateProvisioner]:
    made = LateProvisioner(cluster)
    yield made
    made.delete_everything()


@pytest.mark.smoke
@pytest.mark.parametrize("priority_class", ["", "higher"])
@pytest.mark.parametrize("gate", ["false", "true"])
def test_a_pod_that_waits_for_its_volume_keeps_its_card(
    cluster: ControlPlane,
    provisioner: LateProvisioner,
    extender: Start,
    scheduler: Start,
    gate: str,
    priority_class: str,
) -> None:
    """Other pods come until long after its soft reservation has ended. One has room beside it, on the other card."""
    add_node(cluster, "gpu-0", 2)
    cluster.add_priority_class("higher", 1000, preemptionPolicy="Never")
    ours = extender()
    scheduler(flags=[GATE.format(gate)])
    with assert_never_oversold(cluster):
        provisioner.create_waiting_pod("a", 10)
        until = time.monotonic() + SOFT_RESERVATION_SECONDS + 1
        for number, units in enumerate(itertools.cycle((10, 12))):
            create_and_wait_until_tried(cluster, f"other-{number}", units, priority_class)
            if time.monotonic() > until:
                break
        shown = read_ledger_states(ours)
        nominated_node = cluster.request_ok("GET", f"{PODS}/a")["status"].get("nominatedNodeName")
        provisioner.provision("a")
        pod = wait_until_bound(cluster, "a")

    ((node, (card,)),) = list_places([pod])
    assert shown == {f"a on {node}/{card}": "held, 10", f"other-0 on {node}/{1 - card}": "bound, 10"}
    assert nominated_node == (node if gate == "true" else None)
    wait_until_recounted(cluster, ours)


@pytest.mark.timeout(60 + 90 * TRIALS)
def test_a_waiting_pod_keeps_its_card_when_a_part_is_killed(
    cluster: ControlPlane, provisioner: LateProvisioner, extender: Start, scheduler: Start
) -> None:
    """At any moment: the next extender holds the places of nominated pods, and the next scheduler asks for them again."""
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_HOLD_KILLS={TRIALS}\n")
    random = Random(seed)
    add_node(cluster, "gpu-0", 2)
    cluster.add_priority_class("higher", 1000, preemptionPolicy="Never")
    parts = MortalParts(cluster, extender(), scheduler(flags=UNELECTED))
    with assert_never_oversold(cluster):
        for number, part in enumerate(draw_parts(random, TRIALS)):
            delay = random.uniform(0, 2)
            sys.stdout.write(f"trial={number} killed={part} after={delay:.2f}\n")
            trial = HoldTrial(cluster, provisioner, number)
            trial.run_until(time.monotonic() + delay)
            parts.kill_and_start(part)
            trial.finish()
            wait_until_recounted(cluster, parts.extender)
            trial.delete_pods()


def test_a_waiting_pod_keeps_its_card_when_another_replica_leads(
    cluster: ControlPlane, provisioner: LateProvisioner, extender: Start, scheduler: Start, transcript: Path
) -> None:
    """Its scheduler tries a more important pod first, and calls an extender that has only watched until then."""
    add_node(cluster, "gpu-0", 1)
    cluster.add_priority_class("higher", 1000, preemptionPolicy="Never")
    api = (cluster.api_host, cluster.api_port)
    with start_two_extenders(extender, transcript, api=api) as (first, second):
        leader = scheduler(flags=UNELECTED, **calling(cluster, first))
        provisioner.create_waiting_pod("a", 10)
        for process in (leader, first.process):
            kill_running(process)
        other = pod_manifest("other", 10)
        other["spec"]["priorityClassName"] = "higher"
        cluster.request_ok("POST", PODS, other)
        scheduler(flags=UNELECTED, **calling(cluster, second))
        cluster.wait_until(lambda: is_tried(cluster.request_ok("GET", f"{PODS}/other")), what="other is tried")
        provisioner.provision("a")
        wait_until_bound(cluster, "a")
        wait_until_recounted(cluster, second)


def test_its_place_is_free_again_when_it_is_deleted_while_it_waits(
    cluster: ControlPlane, provisioner: LateProvisioner, extender: Start, scheduler: Start
) -> None:
    add_node(cluster, "gpu-0", 2)
    ours = extender()
    scheduler(flags=GATE_OFF)
    provisioner.create_waiting_pod("a", 10)
    create_and_wait_until_tried(cluster, "b", 10)
    create_and_wait_until_tried(cluster, "c", 12)
    assert "no card with enough free memory" in read_refusal(cluster, "c")

    cluster.request_ok("DELETE", f"{PODS}/a", AT_ONCE)

    wait_until_bound(cluster, "c")
    wait_until_recounted(cluster, ours)


def test_a_pod_that_the_extender_has_not_seen_when_it_is_asked_keeps_its_card(
    cluster: ControlPlane,
    provisioner: LateProvisioner,
    api_proxy: FaultProxyThread,
    extender: Start,
    scheduler: Start,
) -> None:
    """The scheduler's call may come before the watch shows the pod."""
    add_node(cluster, "gpu-0", 2)
    ours = extender(api=(LOOPBACK, api_proxy.port))
    scheduler(flags=GATE_OFF)
    api_proxy.freeze_watches(OUR_POD_WATCH)
    provisioner.create_waiting_pod("a", 10)
    api_proxy.thaw_watches()
    create_and_wait_until_tried(cluster, "b", 10)
    create_and_wait_until_tried(cluster, "c", 12)
    provisioner.provision("a")

    wait_until_bound(cluster, "a")
    assert "no card with enough free memory" in read_refusal(cluster, "c")
    wait_until_recounted(cluster, ours)


@pytest.mark.smoke
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gate", ["false", "true"])
def test_every_pod_that_got_a_node_is_bound_when_its_volume_is_there(
    cluster: ControlPlane, provisioner: LateProvisioner, extender: Start, scheduler: Start, gate: str
) -> None:
    """A stream of pods of which a third waits for volumes, in a cluster with too few cards for all of them.

    The others are as important as these, or more so.
    """
    cluster.add_priority_class("higher", 1000, preemptionPolicy="Never")
    for number in range(NODES):
        add_node(cluster, f"gpu-{number}", CARDS)
    ours = extender()
    scheduler(flags=[GATE.format(gate)])
    stream = Stream(cluster, provisioner)
    with assert_never_oversold(cluster):
        for _ in range(BATCHES):
            stream.send_batch()
        waiting = stream.list_places_to_hold()
        shown = read_ledger_states(ours).items()
        cluster.wait_until(
            stream.finish, what=lambda: f"bound: {stream.list_waiting_pods()}\n{stream.list_taken_cards()}"
        )

    assert stream.list_taken_cards() == []
    assert waiting
    assert waiting <= {place.partition("/")[0] for place, state in shown if state.startswith("held")}
    assert len(stream.provisioned) > WITH_CLAIM // 2
    assert any("nodeName" not in pod["spec"] for pod in list_pods(cluster)), "nothing was at stake"
    wait_until_recounted(cluster, ours)


class HoldTrial:
    """Two pods that wait for volumes have both cards of a node. Four more important ones wait for any."""

    def __init__(self, cluster: ControlPlane, provisioner: LateProvisioner, number: int) -> None:
        self._cluster = cluster
        self._provisioner = provisioner
        self._kept, self._deleted = self._waiting = [f"{name}-{number}" for name in ("kept", "deleted")]
        self._others = [f"other-{number}-{each}" for each in range(4)]
        for name in self._waiting:
            provisioner.create_pod(name, 10)

    def run_until(self, deadline: float) -> None:
        """The others come one by one, once both wait for their volumes: until then they may have no place."""

        def is_over() -> bool:
            self._create_other()
            return time.monotonic() >= deadline

        self._cluster.wait_until(is_over, what="so much time is over")

    def finish(self) -> None:
        """Of the two waiting pods one is deleted, whose card one of the others gets; the other one gets its volume and is bound."""
        self._cluster.wait_until(self._create_other, SETTLED_SECONDS, what=lambda: f"all are created: {self._others}")
        self._cluster.request_ok("DELETE", f"{PODS}/{self._deleted}", AT_ONCE)
        self._cluster.wait_until(self._count_bound_others, SETTLED_SECONDS, what="its card is taken")
        self._cluster.wait_until(
            lambda: self._kept in self._provisioner.list_chosen_nodes(), SETTLED_SECONDS, what="the other one waits"
        )
        self._provisioner.provision(self._kept)
        self._cluster.wait_until(
            self._is_kept_bound, SETTLED_SECONDS, what=lambda: read_refusal(self._cluster, self._kept)
        )
        assert self._count_bound_others() == 1

    def delete_pods(self) -> None:
        for pod in list_pods(self._cluster):
            self._cluster.request_ok("DELETE", f"{PODS}/{pod['metadata']['name']}", AT_ONCE)

    def _create_other(self) -> bool:
        """Whether all have been created."""
        pods = {pod["metadata"]["name"]: pod for pod in list_pods(self._cluster)}
        left = [name for name in self._others if name not in pods]
        if left and self._are_waiting(pods):
            pod = pod_manifest(left[0], 10)
            pod["spec"]["priorityClassName"] = "higher"
            self._cluster.request_ok("POST", PODS, pod)
        return not left

    def _are_waiting(self, pods: dict[str, Pod]) -> bool:
        """Nominated, and past the write to its claim, which may fail and end the attempt."""
        chosen = self._provisioner.list_chosen_nodes()
        return all(name in chosen and pods[name]["status"].get("nominatedNodeName") for name in self._waiting)

    def _count_bound_others(self) -> int:
        return sum(
            "nodeName" in pod["spec"] for pod in list_pods(self._cluster) if pod["metadata"]["name"] in self._others
        )

    def _is_kept_bound(self) -> bool:
        return "nodeName" in self._cluster.request_ok("GET", f"{PODS}/{self._kept}")["spec"]


class Stream:
    """Pods of many sizes, in batches; a volume is made `LATE_BATCHES` after its claim got a node."""

    def __init__(self, cluster: ControlPlane, provisioner: LateProvisioner) -> None:
        self._cluster = cluster
        self._provisioner = provisioner
        self._random = Random(5)
        self._has_claim = [number < WITH_CLAIM for number in range(BATCHES * BATCH)]
        self._random.shuffle(self._has_claim)
        self._sent = 0
        self._batches: list[set[str]] = []
        """After each batch, the claims that had a node."""
        self.provisioned: set[str] = set()
        """Claims whose volume was made."""

    def send_batch(self) -> None:
        names = []
        for has_claim in self._has_claim[self._sent : self._sent + BATCH]:
            name, units = f"{'claim' if has_claim else 'plain'}-{self._sent}", self._random.randint(4, 10)
            if has_claim:
                self._provisioner.create_pod(name, units)
            else:
                pod = pod_manifest(name, units)
                pod["spec"]["priorityClassName"] = self._random.choice(("", "higher"))
                self._cluster.request_ok("POST", PODS, pod)
            names.append(name)
            self._sent += 1
        self._cluster.wait_until(
            lambda: not self._list_untried(names), what=lambda: f"tried: {self._list_untried(names)}"
        )
        self._batches.append(set(self._provisioner.list_chosen_nodes()))
        if len(self._batches) > LATE_BATCHES:
            self._provision(self._batches[-1 - LATE_BATCHES])

    def finish(self) -> bool:
        """Make all volumes that are still to be made; whether all pods are bound that waited for one."""
        self._provision(set(self._provisioner.list_chosen_nodes()))
        return not self.list_waiting_pods()

    def list_places_to_hold(self) -> set[str]:
        """Of pods whose volumes are still to be made, as `pod on node`."""
        chosen = self._provisioner.list_chosen_nodes()
        return {f"{name} on {node}" for name, node in chosen.items() if name not in self.provisioned}

    def list_waiting_pods(self) -> dict[str, str]:
        """Unbound pods for which the scheduler had found a node, each with why it has none now."""
        chosen = self._provisioner.list_chosen_nodes()
        unbound = [pod["metadata"]["name"] for pod in list_pods(self._cluster) if "nodeName" not in pod["spec"]]
        return {name: read_refusal(self._cluster, name) for name in unbound if name in chosen}

    def list_taken_cards(self) -> list[str]:
        """Binds that found no room, of pods with a claim."""
        events = self._cluster.request_ok("GET", EVENTS)["items"]
        failed = [(each["involvedObject"]["name"], each["message"]) for each in events if each["type"] == "Warning"]
        return sorted(f"{name}: {why}" for name, why in failed if "claim" in name and "nothing was bound" in why)

    def _provision(self, names: set[str]) -> None:
        for name in sorted(names - self.provisioned):
            self._provisioner.provision(name)
            self.provisioned.add(name)

    def _list_untried(self, names: list[str]) -> list[str]:
        done = set(self._provisioner.list_chosen_nodes())
        done |= {pod["metadata"]["name"] for pod in list_pods(self._cluster) if is_tried(pod)}
        return [name for name in names if name not in done]


def add_node(cluster: ControlPlane, name: str, cards: int) -> None:
    published = (
        published_card(index, units=UNITS, memory_mib=UNITS * 1024, uuid=f"{name}-{index}") for index in range(cards)
    )
    cluster.add_node(name, cards=cards_annotation(*published, injection="cdi"))


def create_and_wait_until_tried(cluster: ControlPlane, name: str, units: int, priority_class: str = "") -> None:
    """Until it is bound or refused."""
    pod = pod_manifest(name, units)
    pod["spec"]["priorityClassName"] = priority_class
    cluster.request_ok("POST", PODS, pod)
    cluster.wait_until(
        lambda: is_tried(cluster.request_ok("GET", f"{PODS}/{name}")), what=f"{name} is bound or refused"
    )


def is_tried(pod: Pod) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "nodeName" in pod["spec"] or any(each["type"] == "PodScheduled" for each in conditions)


def list_pods(cluster: ControlPlane) -> list[Pod]:
    pods: list[Pod] = cluster.request_ok("GET", PODS)["items"]
    return pods
