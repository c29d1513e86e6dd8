"""Explain says of every node what filter and prioritize say, under rules of all kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import msgspec
import pytest

from extender.policy_settings import PolicyTuning
from extender.rule_settings import RuleSettings
from policies.registry import POLICIES
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import UNIT_MIB, card_facts, container_specs, ledger_pod, pod_request
from tests.support.manifest_builders import RESOURCE
from tests.support.ruled_clusters import Object, draw_node, draw_pod, draw_rules
from vrampack.cards.node import NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest, read_pod_request
from vrampack.cards.rules import NO_RULES
from vrampack.cli.explain.cluster import ClusterListing, ExplainedCluster, ListedNode
from vrampack.cli.explain.evaluation import ClusterEvaluation, describe_card_reason, evaluate_cluster
from vrampack.cli.explain.next_step import suggest_for_refused
from vrampack.kube.examined_objects import ExaminedNode
from vrampack.kube.objects import PodObject, to_pod

CLUSTERS = 50
PODS = 10


class ExplainedScheduling:
    """One random cluster, asked both ways."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.nodes = {name: draw_node(random, name) for name in ("n0", "n1", "n2")}
        settings = RuleSettings.model_validate(draw_rules(random))
        self.rules = settings.build_rules()
        self.harness = SchedulerHarness({}, rules=settings)
        self.tuning = PolicyTuning(default=list(POLICIES)[seed % len(POLICIES)])
        self.harness.parts.engine.set_tuning(self.tuning)
        for facts in self.nodes.values():
            self.harness.put_node(facts)

    def read_pod(self, pod: Object) -> Pod:
        read = msgspec.json.decode(json.dumps(pod), type=PodObject)
        return to_pod(read, label_keys=self.harness.ledger.label_keys)

    def explain_pod(self, pod: Object) -> ClusterEvaluation:
        listed = {name: ListedNode(facts, ExaminedNode(), {"pods": 99}, None) for name, facts in self.nodes.items()}
        bound = {each.uid: each for each in self.harness.ledger.list_pods() if each.node_name}
        cluster = ExplainedCluster(ClusterListing(listed, bound), UNIT_MIB, self.rules)
        settled = self.harness.ledger.placement.resolve_pod(self.read_pod(pod))
        assert settled.request is not None
        self.check_view(settled, evaluation := evaluate_cluster(cluster, self.tuning, settled.request))
        return evaluation

    def check_view(self, pod: Pod, evaluation: ClusterEvaluation) -> None:
        """The running service shows the same nodes, cards, scores and terms, and the terms add up to the score."""
        assert pod.request is not None
        shown = {
            each["name"]: each
            for each in json.loads(json.dumps(list(self.harness.parts.explain_view.describe_nodes(pod, pod.request))))
        }
        for node in evaluation.nodes:
            assert shown[node.name]["score"] == node.score
            assert shown[node.name]["terms"] == [{"name": term.name, "value": term.value} for term in node.terms]
            assert shown[node.name]["chosen"] == sorted(card.index for card in node.chosen_cards)
            assert [each["reason"] for each in shown[node.name]["cards"]] == [
                each.reason.value if each.reason else None for each in node.cards
            ]
            assert node.score is None or sum(term.value for term in node.terms) == pytest.approx(node.score)

    def ask_scheduler(self, pod: Object) -> tuple[dict[str, str], list[str]]:
        """The reason of each node that filter refuses, and the others in the order of prioritize."""
        body = json.dumps({"Pod": pod, "NodeNames": list(self.nodes)}).encode()
        filtered = json.loads(self.harness.parts.verbs.filter(body).body)
        reasons = (filtered["FailedNodes"] or {}) | (filtered["FailedAndUnresolvableNodes"] or {})
        scores = json.loads(self.harness.parts.verbs.prioritize(body).body)
        self.harness.parts.soft_reservations.release_pod(pod["metadata"]["uid"])
        return reasons, [each["Host"] for each in scores]

    async def place_pod(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        self.harness.api.pods[metadata["namespace"], metadata["name"]] = pod
        self.harness.ledger.update_pod(self.read_pod(pod))
        call = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        await self.harness.parts.verbs.bind(json.dumps(call | {"Node": node}).encode())
        self.harness.ledger.update_pod(self.read_pod(pod))


async def test_five_hundred_pods_are_explained_as_they_are_scheduled() -> None:
    said: set[str] = set()
    for seed in range(CLUSTERS):
        cluster = ExplainedScheduling(seed)
        for number in range(PODS):
            pod = draw_pod(cluster.random, f"pod-{number}")
            evaluation = cluster.explain_pod(pod)
            reasons, ranked = cluster.ask_scheduler(pod)
            assert {each.name: each.reason.value for each in evaluation.nodes if each.reason} == reasons
            assert [each.name for each in evaluation.fitting_nodes] == ranked
            said.update(reasons.values())
            if ranked:
                await cluster.place_pod(pod, ranked[-1])
    assert len(said) >= 8


WORDS: dict[str, tuple[Object, str, int | None, str]] = {
    "share_with": (
        {"share_with": "same-namespace"},
        "may not be shared with its pods",
        4,
        "free 4 units on n GPU0 (pods there: default/held 4), or add a card",
    ),
    "max_pods_per_card": (
        {"max_pods_per_card": 1},
        "has as many pods as a rule allows",
        4,
        "free 4 units on n GPU0 (pods there: default/held 4), or add a card",
    ),
    "reserve": (
        {"reserve": [{"model": "A", "cards": 1, "users": {"namespaces": ["x"]}}]},
        "reserved by a rule",
        None,
        "the extender's rules.reserve keeps n GPU0 for others: add a card, or change the rule",
    ),
    "models": (
        {"models": [{"allow": ["B"]}]},
        "model A is not allowed by a rule",
        None,
        "the extender's rules.models lets this pod use B: add such a node, or change the rule",
    ),
}


def explain_to(asked: PodRequest, facts: NodeFacts, *held: Pod) -> tuple[str, int | None, str]:
    """Of the only card of the node: why not, and what to free; and the next step."""
    listing = ClusterListing(
        {"n": ListedNode(facts, ExaminedNode(), {"pods": 99}, None)}, {pod.uid: pod for pod in held}
    )
    cluster = ExplainedCluster(listing, UNIT_MIB, NO_RULES)
    evaluation = evaluate_cluster(cluster, PolicyTuning(), asked)
    (node,) = evaluation.nodes
    (card,) = node.cards
    step = suggest_for_refused(evaluation.nodes, asked, RESOURCE)
    return describe_card_reason(node, card, asked.card_request), card.missing_units, step


def test_a_card_whose_back_end_is_full_is_named() -> None:
    """Of 4 instances, pods of 2, 3 and 5 units take one each; a pod of two containers needs 3, so two pods must go."""
    cards = tuple(replace(card, instances=4) for card in card_facts(16))
    held = [
        ledger_pod(f"p{units}", node="n", units=units, record=Record("vrampack", (Share(units, "GPU-0", 0),)))
        for units in (5, 2, 3)
    ]
    asked = read_pod_request(container_specs([1, 1]), {}, {})
    assert asked is not None
    assert explain_to(asked, NodeFacts("n", cards, has_hook=True, unit_mib=UNIT_MIB), *held) == (
        "has too few free instances (1 of the 3 that the pod takes)",
        5,
        "free 5 units on n GPU0 (pods there: default/p2 2, default/p3 3, default/p5 5), or add a card",
    )


def test_an_agent_that_is_too_old_is_named() -> None:
    facts = NodeFacts("n", card_facts(16), serves=frozenset({"memory"}), unit_mib=UNIT_MIB)
    assert explain_to(pod_request(4, whole=True), facts) == (
        "agent too old for this request",
        None,
        "upgrade the agents that do not understand such requests: n (whole-cards)",
    )


@pytest.mark.parametrize(("rules", "why", "missing", "step"), WORDS.values(), ids=WORDS)
def test_the_rule_that_forbids_is_named(rules: Object, why: str, missing: int | None, step: str) -> None:
    """4 of 16 units are held by a pod of another namespace, and 4 are asked for."""
    facts = NodeFacts("n", card_facts(16, model="A"), unit_mib=UNIT_MIB)
    held = ledger_pod("held", node="n", record=Record("vrampack", (Share(4, "GPU-0", 0),)))
    built = RuleSettings.model_validate(rules).build_rules()
    listing = ClusterListing({"n": ListedNode(facts, ExaminedNode(), {"pods": 99}, None)}, {"held": held})
    asked = built.constrain_request(Pod("new", "other", "new"), pod_request(4))
    evaluation = evaluate_cluster(ExplainedCluster(listing, UNIT_MIB, built), PolicyTuning(), asked)
    (node,) = evaluation.nodes
    (card,) = node.cards
    assert (describe_card_reason(node, card, asked.card_request), card.missing_units) == (why, missing)
    assert suggest_for_refused(evaluation.nodes, asked, RESOURCE) == step
