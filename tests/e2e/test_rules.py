"""Rules in a real cluster: nothing is placed against one, and nothing is refused that all of them allow, by brute force.

Clusters, pods and rules are random; pods come one by one, so that the oracle knows what each of them found. The rules come
from a policy file that changes while the extender runs. `VRAMPACK_RULED_CLUSTERS` says how many (4; `make soak` has 200).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.e2e.auditing import audit_cluster
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import read_metric
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import cards_annotation, published_card
from tests.support.processes import ManagedProcess
from tests.support.ruled_clusters import NAMESPACES, Object, RuleOracle, draw_node, draw_pod, draw_rules, read_units
from vrampack.cards.node import NodeFacts

CLUSTERS = int(os.environ.get("VRAMPACK_RULED_CLUSTERS", "4"))
PODS_EACH = 10
HEAD = {"apiVersion": "vrampack.dev/v1", "kind": "PlacementPolicy"}
ALL_LABELS = {"share_with": "same-label:team", "models": [{"users": {"labels": {"tier": "gold"}}, "allow": ["A"]}]}
"""Labels of pods that no rule names at the start cannot be named later."""
SIDES = {"team-a": "left", "team-b": "right", "other": "left"}
AT_ONCE = {"gracePeriodSeconds": 0}


class RuledCluster:
    """One cluster after the other in one control plane, under an extender that follows `policy`."""

    def __init__(self, cluster: ControlPlane, ours: ExtenderProgram, policy: Path, random: Random) -> None:
        self._cluster = cluster
        self._ours = ours
        self._policy = policy
        self._random = random
        self._names = {name: cluster.namespace(name, labels={"side": side}) for name, side in SIDES.items()}
        self._rules: Object = ALL_LABELS
        self.placed = self.refused = 0

    def run(self, number: int) -> None:
        self._change_rules()
        nodes = {name: draw_node(self._random, name) for name in (f"c{number}-n{at}" for at in range(3))}
        for facts in nodes.values():
            self._cluster.add_node(facts.name, cards=publish_cards(facts))
        oracle = RuleOracle(nodes, self._rules)
        bound: list[Object] = []
        for at in range(PODS_EACH):
            self._place_pod(oracle, f"c{number}-p{at}", bound)
            if bound and self._random.random() < 0.2:
                self._delete(bound.pop(self._random.randrange(len(bound))))

    def empty(self, number: int) -> None:
        for namespace in self._names.values():
            for pod in self._cluster.request_ok("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
                self._delete(pod)
        for at in range(3):
            self._cluster.request_ok("DELETE", f"/api/v1/nodes/c{number}-n{at}", AT_ONCE)

    def _change_rules(self) -> None:
        before, rules = self._rules, self._rules
        while rules == before:
            rules = json.loads(json.dumps(draw_rules(self._random)))
            for entry in (*rules.get("reserve", ()), *rules.get("models", ())):
                names = entry["users"].get("namespaces")
                if names:
                    entry["users"]["namespaces"] = [self._names.get(name, name) for name in names]
                if self._random.random() < 0.3:
                    entry["users"]["namespace_labels"] = {"side": self._random.choice(["left", "right"])}
        self._rules = rules
        generation = read_metric(self._ours, "vrampack_config_generation")
        fresh = self._policy.with_suffix(".new")
        fresh.write_text(json.dumps(HEAD | {"rules": rules}))  # JSON is YAML
        fresh.rename(self._policy)
        self._cluster.wait_until(
            lambda: read_metric(self._ours, "vrampack_config_generation") > generation,
            30,
            what="the rules are in force",
        )

    def _place_pod(self, oracle: RuleOracle, name: str, bound: list[Object]) -> None:
        pod = draw_pod(self._random, name)
        side = SIDES[pod["metadata"]["namespace"]]
        pod["metadata"]["namespace"] = self._names[pod["metadata"]["namespace"]]
        pods = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        self._cluster.request_ok("POST", pods, build_manifest(pod))
        pod["metadata"]["namespaceLabels"] = {"side": side}
        fitting = [node for node in oracle.nodes if oracle.fits_node(pod, node, bound)]

        def read_pod() -> Object:
            seen: Object = self._cluster.request_ok("GET", f"{pods}/{name}")
            return seen

        text = f"{pod} under {oracle.rules} with {bound} on {oracle.nodes}"
        if not fitting:
            self._cluster.wait_until(lambda: is_refused(read_pod()) or "nodeName" in read_pod()["spec"], 30, what=text)
            assert "nodeName" not in read_pod()["spec"], text
            self.refused += 1
            self._delete(read_pod())
            return
        # It may be refused first, where the extender has not heard yet of what was deleted; then it is woken.
        self._cluster.wait_until(lambda: "nodeName" in read_pod()["spec"], 30, what=f"fits {fitting}: {text}")
        seen = read_pod()
        seen["metadata"].setdefault("labels", {})
        node = seen["spec"]["nodeName"]
        assert node in fitting, text
        taken = [card for card in oracle.nodes[node].cards if read_units(seen, card)]
        assert taken, text
        assert all(oracle.takes_card(pod, node, card, bound) for card in taken), text
        bound.append(seen)
        self.placed += 1

    def _delete(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self._cluster.request_ok(
            "DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", AT_ONCE
        )


def publish_cards(facts: NodeFacts) -> str:
    """As the node's agent does."""
    return cards_annotation(
        *(
            published_card(
                card.index,
                units=card.units,
                memory_mib=card.memory_mib,
                uuid=card.uuid or "",
                model=card.model,
                healthy=card.healthy,
            )
            for card in facts.cards
        )
    )


def build_manifest(pod: Object) -> Object:
    """As people write it: the environment is admission's, and the priority is left to its class."""
    container = {key: value for key, value in pod["spec"]["containers"][0].items() if key != "env"}
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    spec = {
        "schedulerName": "vrampack",
        "terminationGracePeriodSeconds": 0,
        "containers": [container | {"image": "example.com/cuda:1"}],
    }
    return {"metadata": metadata, "spec": spec}


def is_refused(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


@pytest.mark.timeout(120 + 30 * CLUSTERS)
def test_nothing_is_placed_against_a_rule_and_nothing_else_is_refused(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    transcript: Path,
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("VRAMPACK_SEED", secrets.randbits(32)))
    sys.stdout.write(f"VRAMPACK_SEED={seed} VRAMPACK_RULED_CLUSTERS={CLUSTERS}\n")
    assert set(NAMESPACES) == set(SIDES)
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(HEAD | {"rules": ALL_LABELS}))
    ours = extender(command=(sys.executable, "-m", "vrampack.cli", "serve", "--policy", policy))
    scheduler()
    ruled = RuledCluster(cluster, ours, policy, Random(seed))
    for number in range(CLUSTERS):
        ruled.run(number)
        broken = audit_cluster(cluster, transcript=transcript)
        assert not broken, f"the auditor reports:\n{broken}"
        ruled.empty(number)
    sys.stdout.write(f"placed {ruled.placed}, refused {ruled.refused}\n")
    assert ruled.placed
    assert ruled.refused
