"""Random nodes, pods and rules, and an oracle of what the rules allow.

The oracle reads the YAML of the rules and the annotations of the pods by itself, following docs/configuration.md.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from itertools import combinations
from random import Random
from typing import Any

from tests.support.builders import UNIT_MIB
from tests.support.manifest_builders import RESOURCE, reference_env
from vrampack.cards.node import CardFacts, NodeFacts

Object = dict[str, Any]  # Any: raw objects, as people and schedulers write them
NAMESPACES = ("team-a", "team-b", "other")


def draw_rules(random: Random) -> Object:
    """Some of the four rules; `team` and `tier` are the only labels."""
    rules: Object = {}
    if random.random() < 0.5:
        rules["max_pods_per_card"] = random.randint(1, 3)
    rules["share_with"] = random.choice(["anybody", "same-namespace", "same-label:team"])
    if random.random() < 0.6:
        rules["reserve"] = [
            {"model": random.choice("AB"), "cards": random.randint(1, 3), "users": draw_selector(random)}
            | ({"min_units": random.randint(1, 8)} if random.random() < 0.3 else {})
            for _ in range(random.randint(1, 2))
        ]
    if random.random() < 0.5:
        rules["models"] = [
            {"users": draw_selector(random), "allow": random.sample("ABC", random.randint(0, 2))} for _ in range(2)
        ]
    return rules


def draw_selector(random: Random) -> Object:
    selector: Object = {}
    if random.random() < 0.7:
        selector["namespaces"] = random.choice([["team-*"], ["team-a"], ["other", "team-b"]])
    if random.random() < 0.4:
        selector["labels"] = {"tier": "gold"}
    return selector


def draw_pod(random: Random, name: str) -> Object:
    labels = {}
    if random.random() < 0.8:
        labels["team"] = random.choice(["x", "y"])
    if random.random() < 0.4:
        labels["tier"] = random.choice(["gold", "tin"])
    count = random.choice([1, 1, 1, 2])
    if count > 1:
        labels["aliyun.com/gpu-count"] = str(count)
    if random.random() < 0.1:
        labels["ack.gpushare.placement"] = "require-whole-device"
    annotations = {"vrampack.dev/card-model": random.choice(["A", "B", "A,C"])} if random.random() < 0.2 else {}
    container = {
        "name": "main",
        "resources": {"limits": {RESOURCE: str(count * random.randint(1, 8))}},
        "env": [reference_env("main")],
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": random.choice(NAMESPACES),
            "uid": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"schedulerName": "vrampack", "containers": [container], "priority": random.choice([0, 0, 5])},
    }


def draw_node(random: Random, name: str) -> NodeFacts:
    model = random.choice(["A", "B"])
    cards = tuple(
        CardFacts(
            index,
            units,
            units * UNIT_MIB,
            f"GPU-{name}-{index}",
            model=model if random.random() < 0.8 else "C",
            healthy=random.random() < 0.9,
        )
        for index, units in enumerate(random.choices([4, 8, 16], k=random.randint(1, 4)))
    )
    return NodeFacts(name, cards, unit_mib=UNIT_MIB)


class RuleOracle:
    """What the rules allow, as documented, on nodes as published and pods as the API server has them."""

    def __init__(self, nodes: dict[str, NodeFacts], rules: Object) -> None:
        self.nodes = nodes
        self.rules = rules
        self.reserve_of: dict[tuple[str, int], int] = {}
        usable = sorted(
            (name, card.index, card.model) for name, facts in nodes.items() for card in facts.cards if card.healthy
        )
        for number, entry in enumerate(rules.get("reserve", ())):
            free = [(n, i) for n, i, model in usable if model == entry["model"] and (n, i) not in self.reserve_of]
            self.reserve_of.update(dict.fromkeys(free[: entry["cards"]], number))

    def fits_node(self, pod: Object, name: str, bound: list[Object]) -> bool:
        count = int(pod["metadata"]["labels"].get("aliyun.com/gpu-count", "1"))
        cards = [card for card in self.nodes[name].cards if self.takes_card(pod, name, card, bound)]
        asked, is_whole = read_request(pod)
        return any(
            not is_whole or sum(card.units for card in chosen) <= asked * count for chosen in combinations(cards, count)
        )

    def takes_card(self, pod: Object, name: str, card: CardFacts, bound: list[Object]) -> bool:
        """Whether the pod may go to this card beside the pods of `bound` that are on it."""
        there = [
            (each, units) for each in bound if each["spec"]["nodeName"] == name and (units := read_units(each, card))
        ]
        units, is_whole = read_request(pod)
        is_large = 16 * card.units >= 15 * units
        room = not there and is_large if is_whole else card.units - sum(n for _, n in there) >= units
        wish = pod["metadata"]["annotations"].get("vrampack.dev/card-model")
        return (
            card.healthy
            and room
            and (wish is None or card.model in wish.split(","))
            and self.keeps_rules(pod, name, card, [each for each, _ in there])
        )

    def keeps_rules(self, pod: Object, name: str, card: CardFacts, there: list[Object]) -> bool:
        reserve = self.reserve_of.get((name, card.index))
        permits = [each["allow"] for each in self.rules.get("models", ()) if matches(each["users"], pod)]
        return (
            len(there) < self.rules.get("max_pods_per_card", 1000)
            and all(self.may_share(pod, each) for each in there)
            and (reserve is None or self.may_use_reserve(pod, self.rules["reserve"][reserve]))
            and (not permits or card.model in permits[0])
        )

    def may_share(self, pod: Object, other: Object) -> bool:
        one, two = pod["metadata"], other["metadata"]
        if self.rules["share_with"] == "same-namespace":
            return bool(one["namespace"] == two["namespace"])
        if self.rules["share_with"] == "same-label:team":
            return "team" in one["labels"] and one["labels"]["team"] == two["labels"].get("team")
        return True

    def may_use_reserve(self, pod: Object, entry: Object) -> bool:
        units, is_whole = read_request(pod)
        return matches(entry["users"], pod) and (is_whole or units >= entry.get("min_units", 0))


def matches(selector: Object, pod: Object) -> bool:
    """`namespaceLabels` of the pod's metadata, which no API server knows, are those of its namespace."""
    names, metadata = selector.get("namespaces"), pod["metadata"]
    return (not names or any(fnmatchcase(metadata["namespace"], each) for each in names)) and all(
        metadata.get(field, {}).get(key) == value
        for field, wanted in (("labels", "labels"), ("namespaceLabels", "namespace_labels"))
        for key, value in selector.get(wanted, {}).items()
    )


def read_request(pod: Object) -> tuple[int, bool]:
    """Units per card, and whether whole cards are asked for."""
    labels = pod["metadata"]["labels"]
    units = int(pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE])
    return units // int(labels.get("aliyun.com/gpu-count", "1")), "ack.gpushare.placement" in labels


def read_units(pod: Object, card: CardFacts) -> int:
    """What the pod's record says it holds on this card."""
    record = json.loads(pod["metadata"]["annotations"]["vrampack.dev/allocation"])
    return sum(each["units"] for each in record["cards"] if each["uuid"] == card.uuid)
