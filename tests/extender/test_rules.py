"""Rules of the cluster, call by call: nothing is placed against one, and nothing is refused that all of them allow.

The oracle reads the YAML of the rules and the annotations of the pods by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from extender.rule_settings import RuleSettings
from extender.state.placement_change import apply_placement
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import UNIT_MIB, card_facts, ledger_pod
from tests.support.ruled_clusters import Object, RuleOracle, draw_node, draw_pod, draw_rules, read_units
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.profiles import NO_SETTINGS, PlacementSettings
from vrampack.cards.reasons import UnfitReason
from vrampack.cards.records import Record
from vrampack.kube.objects import PodObject, to_pod

CLUSTERS = 80
STEPS = 14
RULE_TEXTS = {
    reason.value for reason in UnfitReason if reason.name in ("NOT_PERMITTED", "RESERVED", "NOT_SHAREABLE", "POD_LIMIT")
}


class RuledCluster:
    """The verbs over a random cluster under rules, with a scheduler that takes any node that passes."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.nodes = {name: draw_node(random, name) for name in ("n0", "n1", "n2")}
        rules = draw_rules(random)
        self.oracle = RuleOracle(self.nodes, rules)
        self.harness = SchedulerHarness({}, rules=RuleSettings.model_validate(rules))
        for facts in self.nodes.values():
            self.harness.put_node(facts)
        self.refusals: set[str] = set()

    @property
    def bound(self) -> list[Object]:
        return [pod for pod in self.harness.api.pods.values() if pod["spec"].get("nodeName")]

    def show_pod(self, pod: Object) -> None:
        """The watch shows it."""
        read = msgspec.json.decode(json.dumps(pod), type=PodObject)
        self.harness.ledger.update_pod(to_pod(read, label_keys=self.harness.ledger.label_keys))

    def filter_pod(self, pod: Object) -> list[str]:
        body = json.dumps({"Pod": pod, "NodeNames": list(self.nodes)}).encode()
        answer = json.loads(self.harness.parts.verbs.filter(body).body)
        assert answer["Error"] == ""
        for failed in (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]):
            self.refusals.update((failed or {}).values())
        passed: list[str] = answer["NodeNames"]
        return passed

    async def place_pod(self, name: str) -> None:
        pod = draw_pod(self.random, name)
        metadata = pod["metadata"]
        self.harness.api.pods[metadata["namespace"], name] = pod
        if self.random.random() < 0.8:  # bind has to ask for the others
            self.show_pod(pod)
        before = self.bound
        passed = self.filter_pod(pod)
        want = [node for node in self.nodes if self.oracle.fits_node(pod, node, before)]
        assert passed == want, (pod, self.oracle.rules)
        node = self.random.choice(list(self.nodes))
        call = {"PodName": name, "PodNamespace": metadata["namespace"], "PodUID": name, "Node": node}
        error = json.loads((await self.harness.parts.verbs.bind(json.dumps(call).encode())).body)["Error"]
        assert (error == "") == (node in want), error
        if error:
            del self.harness.api.pods[metadata["namespace"], name]
            self.harness.ledger.remove_pod(name)
            return
        for card in self.nodes[node].cards:
            if read_units(pod, card):
                assert self.oracle.takes_card(pod, node, card, before)
        if self.random.random() < 0.7:
            self.show_pod(pod)

    def delete_pod(self) -> None:
        pod = self.random.choice(self.bound)
        del self.harness.api.pods[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        self.harness.ledger.remove_pod(pod["metadata"]["uid"])

    def change_health(self) -> None:
        """Other cards may be reserved then."""
        name = self.random.choice(list(self.nodes))
        facts = self.nodes[name]
        cards = tuple(replace(card, healthy=self.random.random() < 0.8) for card in facts.cards)
        self.nodes[name] = replace(facts, cards=cards)
        self.harness.put_node(self.nodes[name])
        self.oracle = RuleOracle(self.nodes, self.oracle.rules)

    async def change_rules(self) -> None:
        """Rules that use no other labels. Running pods stay where they are."""
        rules = draw_rules(self.random)
        built = RuleSettings.model_validate(rules).build_rules()
        if built.list_label_keys() <= self.harness.ledger.label_keys:
            before = {(each["metadata"]["uid"], each["spec"]["nodeName"]) for each in self.bound}
            await apply_placement(self.harness.ledger, PlacementSettings(built))
            self.harness.ledger.apply_policy_change()
            self.oracle = RuleOracle(self.nodes, rules)
            assert {(each["metadata"]["uid"], each["spec"]["nodeName"]) for each in self.bound} == before

    async def check_preemption(self) -> None:
        """Without the victims the pod fits, and a node is left out only where no victims would do."""
        pod = draw_pod(self.random, "preemptor")
        pod["spec"]["priority"] = 10
        for each in self.bound:
            self.show_pod(each)
        args = {"Pod": pod, "NodeNameToMetaVictims": {name: {"Pods": []} for name in self.nodes}}
        body = (await self.harness.parts.preemption.preempt(json.dumps(args).encode())).body
        answer = json.loads(body)["NodeNameToMetaVictims"]
        for name in self.nodes:
            victims = {each["UID"] for each in answer.get(name, {"Pods": []})["Pods"]}
            left = [each for each in self.bound if each["metadata"]["uid"] not in victims]
            if victims:
                assert self.oracle.fits_node(pod, name, left)
                assert not any(
                    self.oracle.fits_node(pod, name, [*left, each])
                    for each in self.bound
                    if each["metadata"]["uid"] in victims
                )
            else:
                fits_now = self.oracle.fits_node(pod, name, self.bound)
                assert fits_now == self.oracle.fits_node(pod, name, [])
        self.harness.seconds += 1000
        self.harness.ledger.remove_pod("preemptor")


def put_bound_pod(harness: SchedulerHarness, name: str, team: str) -> None:
    record = Record("vrampack", (Share(4, "GPU-0", 0),))
    pod = ledger_pod(name, units=4, node="n", record=record)
    harness.ledger.update_pod(replace(pod, rule_labels=(("team", team),)))


def test_a_relabelled_pod_belongs_to_another_tenant() -> None:
    harness = SchedulerHarness({"n": [16]}, rules=RuleSettings(share_with="same-label:team"))
    for team, passed in (("x", ["n"]), ("y", [])):
        put_bound_pod(harness, "held", team)
        call = json.loads(harness.encode_call("new"))
        call["Pod"]["metadata"]["labels"] = {"team": "x"}
        assert json.loads(harness.parts.verbs.filter(json.dumps(call).encode()).body)["NodeNames"] == passed


@pytest.mark.parametrize(
    "unusable",
    [{"unit_mib": UNIT_MIB // 2}, {"problem": "its cards are unreadable"}, {"injection": None}],
    ids=["counts in another unit", "is unreadable", "has an unknown injection mode"],
)
def test_a_reserve_takes_no_cards_of_a_node_on_which_nothing_is_placed(unusable: Mapping[str, Any]) -> None:
    """Until the node is well: then its cards come first."""
    harness = SchedulerHarness({}, rules=RuleSettings.model_validate({"reserve": [{"model": "A", "cards": 2}]}))
    for name in ("a", "b"):
        harness.put_node(NodeFacts(name, card_facts(16, 16, model="A"), unit_mib=UNIT_MIB))
    well = harness.ledger.nodes.get_facts("a")
    assert well is not None
    for facts, reserved in ((replace(well, **unusable), "b"), (well, "a")):
        harness.put_node(facts)
        nodes = harness.ledger.list_nodes()
        assert [node.name for node in nodes for card in node.cards if card.reserve is not None] == [reserved] * 2


async def test_a_waiting_pod_is_bound_by_the_current_rules() -> None:
    """It was read under other rules."""
    harness = SchedulerHarness({"n": [16]})
    harness.add_bound_pod("held", "n", 4)
    harness.add_pending_pod("new")
    await apply_placement(harness.ledger, PlacementSettings(RuleSettings(max_pods_per_card=1).build_rules()))
    assert "card has as many pods as a rule allows" in await harness.bind("new", "n")
    await apply_placement(harness.ledger, NO_SETTINGS)
    assert await harness.bind("new", "n") == ""


@pytest.mark.parametrize(
    ("cards", "error", "used"),
    [
        ([16], "node n: card may not be shared with its pods; nothing was bound", [4]),
        ([16, 16], "", [4, 4]),
    ],
    ids=["the only card is another team's", "another card is free"],
)
async def test_a_pod_relabelled_before_its_binding_is_bound_by_its_new_label(
    cards: Sequence[int], error: str, used: Sequence[int]
) -> None:
    """The Binding for the pod as the watch showed it is refused; by its earlier label the pod would go beside `held`."""
    harness = SchedulerHarness({"n": cards}, rules=RuleSettings(share_with="same-label:team"))
    put_bound_pod(harness, "held", "x")
    harness.ledger.update_pod(replace(ledger_pod("new"), rule_labels=(("team", "x"),), resource_version="1"))
    pod = json.loads(harness.encode_call("new"))["Pod"]
    pod["metadata"] |= {"labels": {"team": "y"}, "resourceVersion": "2"}
    harness.api.pods["default", "new"] = pod
    assert await harness.bind("new", "n") == error
    assert [card.used_units for node in harness.ledger.list_nodes() for card in node.cards] == used
    assert bool(harness.ledger.places.list_reservations()) == (not error)


async def test_changes_during_a_rule_change_follow_the_new_rules() -> None:
    """The result is that of a ledger that had the new rules from the start."""
    rules = {"max_pods_per_card": 2, "share_with": "same-namespace", "reserve": [{"model": "A", "cards": 9}]}
    placement = PlacementSettings(RuleSettings.model_validate(rules).build_rules())
    want, changed = SchedulerHarness({}, rules=RuleSettings.model_validate(rules)), SchedulerHarness({})
    for harness in (want, changed):
        for at in range(45):
            harness.put_node(NodeFacts(f"n{at:02}", card_facts(16, 16, model="A"), unit_mib=UNIT_MIB))
        harness.add_bound_pod("before", "n03", 4)
    change = asyncio.create_task(apply_placement(changed.ledger, placement))
    for step in range(40):
        await asyncio.sleep(0)
        if step < 9:
            assert changed.ledger.placement is not placement
            for harness in (want, changed):
                harness.add_bound_pod(f"pod-{step}", f"n{step * 4:02}", 4)
                if step == 6:
                    harness.ledger.remove_node("n01")  # another card is reserved for one of its own
    await change
    assert changed.ledger.list_nodes() == want.ledger.list_nodes()
    assert [card.reserve for card in changed.ledger.list_nodes()[4].cards] == [0, None]


@pytest.mark.parametrize("part", range(4))
async def test_nothing_is_placed_against_a_rule_and_nothing_else_is_refused(part: int) -> None:
    refusals: set[str] = set()
    for seed in range(part, CLUSTERS, 4):
        cluster = RuledCluster(seed)
        for step in range(STEPS):
            await cluster.place_pod(f"pod-{step}")
            roll = cluster.random.random()
            if roll < 0.15 and cluster.bound:
                cluster.delete_pod()
            elif roll < 0.25:
                cluster.change_health()
            elif roll < 0.35:
                await cluster.change_rules()
        await cluster.check_preemption()
        refusals |= cluster.refusals
    assert refusals >= RULE_TEXTS
