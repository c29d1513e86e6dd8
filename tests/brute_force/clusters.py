"""Clusters, rules and pods that a seed draws: cards that look alike and are not, and pods that are in each other's way."""

from __future__ import annotations

import json
from random import Random

from tests.support.manifest_builders import RESOURCE, cards_annotation, published_card, reference_env
from tests.support.ruled_clusters import NAMESPACES, draw_rules
from tests.wire.oracle_annotations import FIRST_WORDS
from vrampack.simulator.resource_kinds import Object

MODELS = ("A", "B")
MIG_MODELS = ("A100-80GB MIG 1g.20gb", "A100-80GB MIG 2g.20gb", "A100-80GB MIG 1g.10gb", "A100-80GB MIG 1g.10gb+me")
POLICIES = ("binpack", "spread", "node-binpack", "fragmentation", "sum-of-squares", "tessellate")
PRIORITIES = tuple(range(-1, 11))


def draw_node(random: Random, name: str) -> Object:
    """One to four cards: equal ones of two models, MIG instances of equal memory, or any; sometimes another plugin's."""
    if random.random() < 0.07:
        count = random.randint(1, 3)
        allocatable = {RESOURCE: str(8 * count), "aliyun.com/gpu-count": str(count)}
        return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
    roll = random.random()
    count = random.randint(1, 4)
    if roll < 0.4:
        models, units = random.choices(MODELS, k=max(count, 3)), [random.choice((8, 16))] * max(count, 3)
    elif roll < 0.6:
        pair = random.choice((MIG_MODELS[:2], MIG_MODELS[2:]))
        models, units = random.choices(pair, k=count), [8] * count
    else:
        models, units = random.choices((*MODELS, "C"), k=count), random.choices((4, 8, 16), k=count)
    cards = [
        published_card(
            index,
            units=each,
            memory_mib=each * 1024,
            uuid=f"GPU-{name}-{index}",
            model=model,
            numa=None,
            healthy=random.random() < 0.9,
            mig_parent=f"GPU-{name}" if model in MIG_MODELS else None,
        )
        for index, (each, model) in enumerate(zip(units, models, strict=True))
    ]
    unit_mib = 512 if random.random() < 0.15 else 1024
    injection = random.choices(("exact", "cdi", "nri"), (10, 9, 1))[0]
    agent = draw_agent(Random(f"{name} {models} {units}"), cards)
    notes = {"vrampack.dev/cards": cards_annotation(*cards, unit_mib=unit_mib, injection=injection, **agent)}
    return {"metadata": {"name": name, "annotations": notes}}


def draw_agent(random: Random, cards: list[Object]) -> Object:
    """What the agent says of itself; some can hold only so many limits on a card. `random` is the node's own."""
    said: Object = {}
    if random.random() < 0.4:
        said["serves"] = random.choice(
            (["memory"], ["memory", "several-cards"], [*FIRST_WORDS, "uneven-cards", "later"], [*FIRST_WORDS])
        )
    if random.random() < 0.3:
        said["hook"] = random.random() < 0.5
        most = random.choice((1, 2, 3, 4))
        for card in cards:
            card["instances"] = most
    return said


def draw_nodes(random: Random, count: int) -> list[Object]:
    """Nodes `n0`, `n1` ..; half of them have the same cards as one before."""
    nodes: list[Object] = []
    for at in range(count):
        name = f"n{at}"
        if nodes and random.random() < 0.5:
            like = random.choice(nodes)
            text = json.dumps(like)
            nodes.append(json.loads(text.replace(like["metadata"]["name"], name)))
        else:
            nodes.append(draw_node(random, name))
    return nodes


def draw_pod(random: Random, name: str) -> Object:
    labels: dict[str, str] = {}
    notes: dict[str, str] = {}
    if random.random() < 0.8:
        labels["team"] = random.choice(("x", "y"))
    if random.random() < 0.4:
        labels["tier"] = random.choice(("gold", "tin"))
    count = random.choice((1, 1, 1, 2, 2))
    if count > 1:
        labels["aliyun.com/gpu-count"] = str(count)
    if random.random() < 0.1:
        labels["ack.gpushare.placement"] = "require-whole-device"
    roll = random.random()
    if roll < 0.25:
        notes["vrampack.dev/card-model"] = random.choice((*MODELS, "A,C", *MIG_MODELS))
    elif roll < 0.3:
        notes["vrampack.dev/card-uuid"] = f"GPU-n{random.randrange(4)}-{random.randrange(3)}"
    if random.random() < 0.3:
        notes["vrampack.dev/policy"] = random.choice((*POLICIES, "any-pod-s"))
    units = count * random.choice((1, 2, 3, 4, 4, 5, 6, 8, 8, 12)) + (random.random() < 0.03)
    container: Object = {"name": "main", "image": "example.com/cuda:1"}
    container["resources"] = {"limits": {RESOURCE: str(units)}}
    if random.random() < 0.95:
        container["env"] = [reference_env("main")]
    containers = [container]
    if units > count and Random(f"{name} {units}").random() < 0.3:
        side = {**container, "name": "side", "resources": {"limits": {RESOURCE: str(count)}}}
        container["resources"] = {"limits": {RESOURCE: str(units - count)}}
        containers.append(side | ({"env": [reference_env("side")]} if "env" in container else {}))
    metadata = {"name": name, "namespace": random.choice(NAMESPACES), "labels": labels, "annotations": notes}
    spec = {"schedulerName": "vrampack", "containers": containers, "priority": random.choice((0, *PRIORITIES))}
    return {"metadata": metadata, "spec": spec}


def draw_placement(random: Random) -> tuple[Object, Object]:
    """The rules, and all fields of the configuration that a reload may change, as they are written in the file."""
    rules = draw_rules(random) if random.random() < 0.8 else {"share_with": "anybody"}
    for entry in (*rules.get("reserve", ()), *rules.get("models", ())):
        if random.random() < 0.3:
            entry["users"]["namespace_labels"] = {"owner": random.choice(("x", "y"))}
    if whole_cards := Random(str(rules)).choice((None, "paid", "as-requested")):
        rules["whole_cards"] = whole_cards
    profiles = [
        {
            "name": "any-pod-s",
            "policy": random.choice(POLICIES),
            "by_annotation": True,
            "bounds": {"card_use_percent": 80},
            "users": {"labels": {"tier": "gold", "team": "x"}},
        }
    ]
    policy: Object = {"default": random.choice(POLICIES), "allowed": random.sample(POLICIES, 2)}
    if random.random() < 0.3:
        policy["shadow"] = {"policy": random.choice(POLICIES)}
    return rules, {"rules": rules, "profiles": profiles, "policy": policy}


def change_cards(random: Random, node: Object) -> Object | None:
    """A patch of a node's cards: health, model or unit change, never their number or size; None for another plugin's."""
    notes = node["metadata"].get("annotations") or {}
    if "vrampack.dev/cards" not in notes:
        return None
    published = json.loads(notes["vrampack.dev/cards"])
    card = random.choice(published["cards"])
    roll = random.random()
    if roll < 0.1 and "serves" in published:
        published["serves"] = [*FIRST_WORDS]  # the agent was upgraded
    elif roll < 0.4:
        card["healthy"] = not card["healthy"]
    elif roll < 0.7:
        other = random.choice(published["cards"])
        card["model"], other["model"] = other["model"], card["model"]
    elif roll < 0.85:
        published["unit_mib"] = 1536 - published["unit_mib"]
    else:
        cordoned = "" if "vrampack.dev/cordoned-cards" in notes else card["uuid"]
        return {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": cordoned or None}}}
    return {"metadata": {"annotations": {"vrampack.dev/cards": json.dumps(published)}}}
