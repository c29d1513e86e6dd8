"""Which nodes autoscalers must leave alone: those that they would empty by sums, onto cards without room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.stranded_nodes import find_stranded_nodes
from extender.state.ledger import Ledger
from tests.support.builders import UNIT_MIB, ledger_pod, node_facts
from vrampack.cards import well_known
from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.kube.examined_objects import decode_node_spec
from vrampack.kube.objects import NodeObject, PodSpec

Json = Any
OWN_NODE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        }
    }
}
TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


class World:
    """Nodes with cards of 8 units, and pods on them."""

    def __init__(self) -> None:
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0)
        self.rules = NodeRules(well_known.MEMORY_RESOURCE)

    def add_node(
        self, name: str, used: Sequence[Sequence[int]], *, specs: Mapping[str, Json] | None = None, **fields: Json
    ) -> None:
        """`used` has the pods on each card, in units; `specs` the pods' by `<node>-<card>-<number>`; `fields` the Node's."""
        facts = node_facts(name, *[8] * len(used))
        self.ledger.update_node(replace(facts, offered_units=8 * len(used)))
        allocatable = {well_known.MEMORY_RESOURCE: str(8 * len(used))}
        node = {"metadata": {"name": name, "labels": {"pool": name}}, "status": {"allocatable": allocatable}, **fields}
        read = msgspec.json.decode(json.dumps(node), type=NodeObject)
        self.rules.update_node(read, decode_node_spec(read))
        for card, pods in enumerate(used):
            for number, units in enumerate(pods):
                uid = f"{name}-{card}-{number}"
                record = Record("vrampack", (Share(units, f"GPU-{card}", card),))
                pod = ledger_pod(uid, units=units, node=name, record=record)
                self.ledger.update_pod(pod)
                spec = json.dumps((specs or {}).get(uid, {}))
                self.rules.update_pod(pod, msgspec.json.decode(spec, type=PodSpec))

    def find_stranded(self) -> set[str]:
        return asyncio.run(find_stranded_nodes(self.ledger, self.rules))


def test_nodes_whose_pods_fit_elsewhere_by_sums_and_not_by_cards_are_stranded() -> None:
    world = World()
    world.add_node("a", [[5], [5]])
    world.add_node("b", [[5], [5]])
    assert world.find_stranded() == {"a", "b"}


def test_where_not_even_the_sums_fit_the_autoscaler_sees_it_itself() -> None:
    world = World()
    world.add_node("a", [[5]])
    world.add_node("b", [[5]])
    assert world.find_stranded() == set()


def test_a_node_may_go_if_cards_are_free_for_all_its_pods_and_their_new_node_stays() -> None:
    world = World()
    world.add_node("a", [[3], []])
    world.add_node("b", [[5], [5]])
    assert world.find_stranded() == {"b"}


def test_of_two_nodes_whose_pods_need_the_same_room_one_may_go() -> None:
    world = World()
    for name in ("a", "b"):
        world.add_node(name, [[3], []])
    world.add_node("c", [[5], [6]])
    assert world.find_stranded() == {"b", "c"}


def test_an_empty_node_takes_pods_and_needs_no_protection() -> None:
    world = World()
    world.add_node("a", [[5], [5]])
    world.add_node("b", [[], []])
    assert world.find_stranded() == set()


RULES: dict[str, tuple[Json, Json, set[str]]] = {
    "none": ({}, {}, set()),
    "a taint of the free node": ({}, {"spec": {"taints": [TAINT]}}, {"a", "b"}),
    "a taint that the pods tolerate": ({"tolerations": [{"operator": "Exists"}]}, {"spec": {"taints": [TAINT]}}, set()),
    "the free node is cordoned": ({}, {"spec": {"unschedulable": True}}, {"a", "b"}),
    "a selector of another node": ({"nodeSelector": {"pool": "b"}}, {}, {"a"}),
    "they belong to their node": ({"affinity": OWN_NODE}, {}, set()),
}


@pytest.mark.parametrize(("spec", "free_node", "stranded"), RULES.values(), ids=RULES)
def test_only_nodes_that_the_pods_may_use_count(spec: Json, free_node: Json, stranded: set[str]) -> None:
    world = World()
    specs = {f"{name}-{card}-0": spec for name, card in product("ab", range(2))}
    world.add_node("a", [[5], [5]], specs=specs)
    world.add_node("b", [[5], [5]], specs=specs)
    world.add_node("free", [[]] * 4, **free_node)
    assert world.find_stranded() == stranded


@given(st.lists(st.lists(st.lists(st.integers(1, 5), max_size=2), min_size=1, max_size=2), min_size=2, max_size=4))
def test_the_pods_of_all_nodes_that_may_go_find_cards_together(used: list[list[list[int]]]) -> None:
    world = World()
    for number, cards in enumerate(used):
        world.add_node(str(number), [pods if sum(pods) <= 8 else pods[:1] for pods in cards])
    stranded = world.find_stranded()
    nodes = {node.name: node for node in world.ledger.list_nodes()}
    room = {name: node.total_units - node.used_units for name, node in nodes.items()}
    pods = {
        name: sorted((sum(hold.units.values()) for hold in world.ledger.list_holds(name)), reverse=True)
        for name in nodes
    }
    going = [
        name
        for name in nodes
        if name not in stranded
        and any(room[other] >= units for units in pods[name] for other in nodes if other != name)
    ]
    free = [card.units - card.used_units for name, node in nodes.items() if name not in going for card in node.cards]
    assert can_place([units for name in going for units in pods[name]], free)


def can_place(sizes: Sequence[int], free: Sequence[int]) -> bool:
    """By trying every card for each."""
    if not sizes:
        return True
    return any(
        room >= sizes[0] and can_place(sizes[1:], [*free[:at], room - sizes[0], *free[at + 1 :]])
        for at, room in enumerate(free)
    )
