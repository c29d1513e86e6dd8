"""The ledger under any order of events: nothing is ever sold twice, and a rebuilt ledger equals the one that watched.

`Cluster` is an API server in a few dictionaries: its events wait in a queue and are delivered late, Bindings whose
reply was lost land later or never, lists run while pods change. `HonestCluster` has us as its only writer and checks
what the API server itself would show; `AnyCluster` adds forged and foreign bindings, damaged records and cards that
change, under which only the ledger's own truth is left to check.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from extender.policy_settings import PolicyTuning
from extender.state.ledger import Ledger
from extender.state.ledger_drift import count_drift_units
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.relist_baseline import RelistBaseline
from policies.engine.engine import Engine
from policies.evaluate import evaluate_node, sort_by_score
from tests.support.builders import UNIT_MIB, allocation_record, card_facts, node_facts, pod_request, record_of
from vrampack.cards.allocation import Allocation, allocate_cards
from vrampack.cards.amounts import Amounts
from vrampack.cards.fit import Unfit
from vrampack.cards.node import Node, NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record, UnreadableRecord
from vrampack.cards.request import PodRequest
from vrampack.cards.tuned_policy import TunedPolicy

RUNS = int(os.environ.get("VRAMPACK_LEDGER_RUNS", "25"))
"""Of each machine, other ones each time; `make soak` runs more."""
NODES = ("n0", "n1", "n2")
COMPUTE: Amounts = (("compute", 100),)


def ask_compute(request: PodRequest, amount: int) -> PodRequest:
    """The same, with so much of each card besides memory."""
    return replace(request, card_request=replace(request.card_request, amounts=(("compute", amount),)))


def offer_compute(facts: NodeFacts) -> NodeFacts:
    return replace(facts, cards=tuple(replace(card, offered=COMPUTE) for card in facts.cards))


ASKS = (
    pod_request(4),
    pod_request(7),
    pod_request(9),
    pod_request(15),
    pod_request(16, count=2),
    pod_request(4, whole=True),
    ask_compute(pod_request(3), 40),
    ask_compute(pod_request(4, count=2), 70),
)
"""Few cards and large asks, so that nearly every pair of pods is in each other's way; some by another axis than memory."""


class ClusterMachine(RuleBasedStateMachine):
    """Nodes and pods as the API server has them, and one ledger that hears of them late."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, NodeFacts] = {
            "n0": offer_compute(node_facts("n0", 15)),
            "n1": offer_compute(node_facts("n1", 16, 8)),
        }
        self.nodes["n2"] = node_facts("n2", 15, 15, legacy=True)
        self.live: dict[str, Pod] = {}
        self.events: list[tuple[str, Any]] = []
        self.posts: list[tuple[str, str, Allocation, str]] = []
        """Bindings sent whose reply was lost, with the version of the pod: they may still land."""
        self.made = 0
        self.version = 0
        self.ledger = a_ledger()
        self.engine = Engine(
            Nominator(self.ledger, PendingPreemptions(self.ledger, clock=lambda: 0.0)), PolicyTuning(default="binpack")
        )
        for facts in self.nodes.values():
            self.ledger.update_node(facts)

    @rule(target=pods, ask=st.sampled_from(ASKS), heard=st.sampled_from([True, True, False]))
    def create(self, ask: PodRequest, *, heard: bool) -> str:
        uid = self.make(ask)
        if heard:
            self.ledger.update_pod(self.live[uid])
        return uid

    @rule(target=pods, ask=st.sampled_from(ASKS), node=st.sampled_from(NODES))
    def run(self, ask: PodRequest, node: str) -> str:
        """The ordinary life of a pod, in one step: seen, bound, confirmed."""
        uid = self.make(ask)
        self.ledger.update_pod(self.live[uid])
        self.bind(uid, node, "heard")
        self.deliver(len(self.events))
        return uid

    @rule(uid=pods, node=st.sampled_from(NODES), beside=st.sampled_from([(), NODES]))
    def hold(self, uid: str, node: str, beside: Collection[str]) -> None:
        """As filter and prioritize do it for a pod that may be bound late, if also on several sets of nodes."""
        self.ledger.release_held_places(uid, "filtered", beside=[name for name in beside if name != node])
        pod = self.ledger.get_pod(uid)
        seen = self.ledger.get_node_for_pod(node, uid)
        if pod is None or pod.node_name or pod.is_terminating or pod.request is None or seen is None:
            return
        judged = self.engine.evaluate_node(node, pod.request, uid)
        if not isinstance(judged, Unfit):
            allocation = allocate_cards(seen, judged.cards, pod.request)
            self.ledger.hold_place(pod, node, allocation, judged.score, beside=beside)

    @rule(uid=pods, node=st.sampled_from(NODES), reply=st.sampled_from(["heard", "cut", "lost", "heard", "refused"]))
    def bind(self, uid: str, node: str, reply: str) -> None:
        """As `extender.scheduling.binding` does it: decide, reserve, send, and do what the reply means."""
        pod = self.ledger.get_pod(uid)
        seen = self.ledger.get_node_for_pod(node, uid)
        if pod is None or pod.node_name or pod.is_terminating or pod.request is None or seen is None:
            return
        held = self.ledger.places.get_reservation(uid)
        if held is not None and held.node_name != node:
            self.fence(uid)
            return
        earlier = self.ledger.places.get_reservation_on(uid, node)
        if earlier is not None:
            allocation = earlier.allocation
        else:
            judged = self.engine.evaluate_node(node, pod.request, uid)
            if isinstance(judged, Unfit):
                self.ledger.release_held_places(uid, "failed")
                return
            allocation = allocate_cards(seen, judged.cards, pod.request)
            self.ledger.assume(pod, node, allocation)
        version = pod.resource_version
        self.ledger.record_binding(uid, node, version)
        if reply == "refused" or (reply == "heard" and not self.land(uid, node, allocation, version)):
            held = self.ledger.places.get_reservation_on(uid, node)
            if held is not None and not held.is_unconfirmed:
                self.ledger.forget(uid, node)
            self.fetch(uid)
        elif reply == "lost":
            self.ledger.mark_unconfirmed(uid, node)
            self.posts.append((uid, node, allocation, version))
        elif reply == "cut":
            self.land(uid, node, allocation, version)
            self.ledger.mark_unconfirmed(uid, node)

    @rule(uid=pods)
    def fence(self, uid: str) -> None:
        """As `extender.scheduling.binding_fence` does it: give the pod a new version, and release the place if it is unbound."""
        reservation, pod = self.ledger.places.get_reservation(uid), self.live.get(uid)
        if reservation is None or pod is None:
            return
        if not pod.node_name and pod.resource_version == reservation.binding_version:
            self.put(pod)
        self.fetch(uid)
        if not self.live[uid].node_name:
            self.ledger.forget(uid, reservation.node_name)

    @rule(uid=pods)
    def change(self, uid: str) -> None:
        """The scheduler writes a condition, or anybody a label."""
        if uid in self.live:
            self.put(self.live[uid])

    @precondition(lambda self: self.posts)
    @rule(data=st.data())
    def land_late(self, data: st.DataObject) -> None:
        self.land(*self.posts.pop(data.draw(st.integers(0, len(self.posts) - 1))))

    @rule(uid=pods)
    def fetch(self, uid: str) -> None:
        """One GET of a pod that the API server showed before."""
        pod = self.live.get(uid)
        if pod is None:
            self.ledger.remove_pod(uid)
        else:
            self.ledger.update_fetched_pod(pod)

    @rule(uid=pods)
    def terminate(self, uid: str) -> None:
        if uid in self.live and self.live[uid].node_name:
            self.put(replace(self.live[uid], is_terminating=True))

    @rule(uid=consumes(pods))
    def delete(self, uid: str) -> None:
        if self.live.pop(uid, None) is not None:
            self.events.append(("gone", uid))

    @rule(uid=pods)
    def finish(self, uid: str) -> None:
        if uid in self.live and self.live[uid].node_name:
            self.put(replace(self.live[uid], is_finished=True))

    @rule(count=st.sampled_from([1, 2, 5, 100]))
    def deliver(self, count: int) -> None:
        """The watch: in order, some events late."""
        for _ in range(min(count, len(self.events))):
            kind, what = self.events.pop(0)
            if kind == "gone":
                self.ledger.remove_pod(what)
            elif kind == "pod":
                self.ledger.update_pod(what)
            elif kind == "node":
                self.ledger.update_node(what)
            else:
                self.ledger.remove_node(what)

    @rule(lands=st.booleans())
    def relist(self, *, lands: bool) -> None:
        """A list of all pods; a Binding may land, and be looked up, between its snapshot and its end."""
        before: RelistBaseline = self.ledger.begin_list()
        snapshot = list(self.live.values())
        self.events = [event for event in self.events if event[0] in ("node", "node gone")]
        if lands and self.posts:
            post = self.posts.pop()
            if self.land(*post):
                self.fetch(post[0])
        for pod in snapshot:
            self.ledger.update_listed_pod(pod)
        self.ledger.end_list(before, {pod.uid for pod in snapshot})

    @invariant()
    def sums_are_those_of_a_fresh_count(self) -> None:
        assert {name: count_drift_units(self.ledger, name) for name in NODES} == dict.fromkeys(NODES, 0)

    @invariant()
    def the_engine_has_followed_every_change(self) -> None:
        """The engine is told what changed and looks at nothing else."""
        names = [*NODES, "never-seen"]
        for ask in ASKS:
            plain = {
                name: evaluate_node(self.ledger.get_node(name), ask.card_request, TunedPolicy("binpack"))
                for name in names
            }
            said = self.engine.filter_nodes(names, ask, "somebody-else")
            assert said.passed == [name for name, each in plain.items() if not isinstance(each, Unfit)]
            assert said.unschedulable | said.unresolvable == {
                name: each.reason.value for name, each in plain.items() if isinstance(each, Unfit)
            }
            assert self.engine.rank_nodes(said.passed, ask, "somebody-else", 6) == sort_by_score(plain)

    @invariant()
    def holds_are_of_unbound_pods_without_a_reservation(self) -> None:
        for held in self.ledger.places.list_held_places():
            pod = self.ledger.get_pod(held.pod.uid)
            assert pod is not None
            assert not pod.node_name
            assert not pod.is_terminating
            assert self.ledger.places.get_reservation(pod.uid) is None

    @invariant()
    def a_rebuilt_ledger_is_the_same(self) -> None:
        """Once everything was heard. Reservations are no business of the API server's, so they are carried over."""
        if self.events:
            return
        rebuilt = a_ledger()
        for facts in self.nodes.values():
            rebuilt.update_node(facts)
        before = rebuilt.begin_list()
        for pod in self.live.values():
            rebuilt.update_listed_pod(pod)
        rebuilt.end_list(before, set(self.live))
        for each in self.ledger.places.list_reservations():
            rebuilt.assume(each.pod, each.node_name, each.allocation)
        for held in self.ledger.places.list_held_places():
            rebuilt.hold_place(held.pod, held.node_name, held.allocation, held.score, beside=NODES)
        assert cards_of(rebuilt) == cards_of(self.ledger)

    def make(self, ask: PodRequest) -> str:
        self.made += 1
        uid = f"p{self.made}"
        self.put(Pod(uid, "default", uid, request=ask))
        return uid

    def put(self, pod: Pod) -> None:
        self.version += 1
        self.live[pod.uid] = replace(pod, resource_version=str(self.version))
        self.events.append(("pod", self.live[pod.uid]))

    def land(self, uid: str, node: str, allocation: Allocation, version: str) -> bool:
        """What the API server does with a Binding: all of it, or nothing."""
        pod = self.live.get(uid)
        if pod is None or pod.resource_version != version or pod.node_name or pod.is_terminating:
            return False
        self.put(replace(pod, node_name=node, record=record_of(allocation)))
        return True


class HonestCluster(ClusterMachine):
    """No other program binds and cards do not shrink: then no card is oversold, whatever else happens."""

    @invariant()
    def no_card_is_over_at_the_api(self) -> None:
        held: Counter[tuple[str, int | None]] = Counter()
        compute: Counter[tuple[str, int | None]] = Counter()
        for pod in self.live.values():
            if pod.node_name and not pod.is_finished and isinstance(pod.record, Record):
                for share in pod.record.shares:
                    held[pod.node_name, share.index] += share.units
                    compute[pod.node_name, share.index] += dict(share.amounts).get("compute", 0)
        for (node, index), units in held.items():
            assert units <= next(card.units for card in self.nodes[node].cards if card.index == index)
        assert max(compute.values(), default=0) <= 100

    @invariant()
    def no_card_is_over_in_the_ledger(self) -> None:
        cards = [card for node in self.ledger.list_nodes() for card in node.cards]
        assert not [card for card in cards if card.is_overcommitted or dict(card.taken).get("compute", 0) > 100]


class AnyCluster(ClusterMachine):
    """Forgers, damaged records, other schedulers, and nodes whose cards change, go and come back."""

    @rule(
        uid=ClusterMachine.pods,
        node=st.sampled_from((*NODES, "never-seen")),
        record=st.sampled_from(
            [
                None,
                UnreadableRecord("vrampack.dev/allocation", "not JSON"),
                Record("vrampack", (Share(4, "GPU-0", 0),)),
                Record("vrampack", (Share(4, "GPU-of-another-node", 0),)),
                Record("gpushare-v2", (Share(30, index=1),)),
                Record("gpushare-v1", (Share(4, index=7),)),
            ]
        ),
    )
    def bind_by_somebody_else(self, uid: str, node: str, record: Record | UnreadableRecord | None) -> None:
        pod = self.live.get(uid)
        if pod is not None and not pod.node_name:
            self.put(replace(pod, node_name=node, record=record))

    @rule(
        node=st.sampled_from(NODES),
        kind=st.sampled_from(["smaller", "sick", "other axes", "other cards", "observed", "again"]),
    )
    def change_node(self, node: str, kind: str) -> None:
        facts = self.nodes.get(node, node_facts(node, 15, 15))
        if kind == "smaller":
            facts = replace(facts, cards=facts.cards[:1])
        elif kind == "sick":
            facts = replace(facts, cards=tuple(replace(card, healthy=not card.healthy) for card in facts.cards))
        elif kind == "other axes":
            has_compute = any(card.offered for card in facts.cards)
            facts = node_facts(node, 15, 15) if has_compute else offer_compute(facts)
        elif kind == "other cards":
            facts = replace(facts, legacy=False, cards=card_facts(15, 24, uuids=("GPU-x", "GPU-y")))
        elif kind == "observed":
            facts = replace(facts, observed={uid: (Share(2, index=0),) for uid in self.live})
        else:
            facts = node_facts(node, 15, 15)
        self.nodes[node] = facts
        self.events.append(("node", facts))

    @rule(node=st.sampled_from(NODES))
    def delete_node(self, node: str) -> None:
        if self.nodes.pop(node, None) is not None:
            self.events.append(("node gone", node))


def a_ledger() -> Ledger:
    return Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0)


def cards_of(ledger: Ledger) -> dict[str, Any]:
    return {node.name: (node.cards, node.largest_free_units, node.free_units) for node in ledger.list_nodes()}


def test_records_built_for_tests_equal_those_that_a_bind_writes() -> None:
    """The machine writes `Record` values; a bind writes annotations: both must mean the same."""
    ledger = a_ledger()
    ledger.update_node(node_facts("n", 15, 15))
    node = ledger.get_node("n")
    assert isinstance(node, Node)
    ask = pod_request(8, count=2)
    allocation = allocate_cards(node, node.cards, ask)
    assert allocation_record(node, node.cards, ask) == record_of(allocation)


TestHonestCluster = pytest.mark.timeout(120)(HonestCluster.TestCase)
TestHonestCluster.settings = settings(max_examples=RUNS, stateful_step_count=60, deadline=None)
TestAnyCluster = pytest.mark.timeout(120)(AnyCluster.TestCase)
TestAnyCluster.settings = settings(max_examples=RUNS, stateful_step_count=60, deadline=None)
