"""The nodes of the ledger: each is computed from its facts and from what pods hold there, again at every change to either."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from extender.state.known_pods import KnownPods
from extender.state.ledger_changes import LedgerChanges
from extender.state.ledger_problems import ReportedProblems
from extender.state.ledger_rules import LedgerRules
from extender.state.places import Places
from vrampack.cards.capacity_change import has_changed_cards, has_gained_capacity
from vrampack.cards.holding import Hold, build_bound_hold, build_reserved_hold, get_display_order, index_cards
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.scheduler_totals import count_unasked_units, has_gained_units


class KnownNodes:
    """What the API server shows of each node, and the sums that follow from it."""

    def __init__(self, rules: LedgerRules, pods: KnownPods, places: Places, changes: LedgerChanges) -> None:
        self._rules = rules
        self._pods = pods
        self._places = places
        self._changes = changes
        self._facts: dict[str, NodeFacts] = {}
        self._nodes: dict[str, Node] = {}
        self._unasked_units: dict[str, int | None] = {}
        self._reported_problems = ReportedProblems()

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def get_facts(self, name: str) -> NodeFacts | None:
        return self._facts.get(name)

    def get_node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def get_unasked_units(self, name: str) -> int | None:
        """The units of the node that the scheduler counts as free; None if unknown. See `vrampack.cards.scheduler_totals`."""
        return self._unasked_units.get(name)

    def list_names(self) -> frozenset[str]:
        return frozenset(self._facts)

    def list_nodes(self) -> list[Node]:
        """All nodes by name, including those without cards."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def list_nodes_gained_since(self, generation: int) -> list[tuple[int, Node]]:
        """The nodes that gained room after this capacity generation, the latest first, each with that of its gain."""
        return [(gained_at, self._nodes[name]) for name, gained_at in self._changes.list_gained_since(generation)]

    def list_holds(self, name: str) -> list[Hold]:
        """What each pod holds on a node, in the order of namespace and name."""
        facts = self._facts.get(name) or NodeFacts(name)
        return sorted(self._build_holds(facts), key=get_display_order)

    def build_under(self, rules: LedgerRules, name: str) -> Node | None:
        """The node as it would be under other rules."""
        facts = self._facts.get(name)
        return None if facts is None else rules.build_node(facts, self._build_holds(facts))

    def build_after_terminations(self, name: str, victim_uids: Collection[str]) -> Node | None:
        if not victim_uids and not any(pod.is_terminating for pod in self._pods.list_on_node(name)):
            return self._nodes.get(name)
        return self._build_without(name, lambda hold: hold.state == "terminating" or hold.pod.uid in victim_uids)

    def build_for_pod(self, name: str, uid: str) -> Node | None:
        if self._places.is_on_node(uid, name):
            return self._build_without(name, lambda hold: hold.pod.uid == uid)
        return self._nodes.get(name)

    def build_for_group(self, name: str, uids: Collection[str], priority: int) -> Node | None:
        def may_leave(pod: Pod) -> bool:
            return pod.uid in uids or pod.priority < priority

        if not self._pods.has_pod_below(name, priority) and not any(
            may_leave(place.pod) for place in self._places.list_on_node(name)
        ):
            return self._nodes.get(name)
        return self._build_without(name, lambda hold: may_leave(hold.pod))

    def recount_node(self, name: str) -> Node | None:
        """The node by a fresh count, which must equal the one that is kept."""
        return self.build_under(self._rules, name)

    def exchange_nodes(self, rules: LedgerRules, nodes: dict[str, Node]) -> None:
        """Put these rules, and all nodes as they are under them, into force."""
        self._rules, self._nodes = rules, nodes
        self._changes.record_all_changed(len(nodes))

    def record_capacity_gains(self) -> None:
        """Every node counts as having gained room."""
        self._changes.record_capacity_gains(self._nodes.keys())

    def put_facts(self, facts: NodeFacts) -> None:
        if self._facts.get(facts.name) != facts:
            self._facts[facts.name] = facts
            self._rebuild_nodes(self._rules.put_node(facts.name, facts))

    def remove_node(self, name: str) -> None:
        if self._facts.pop(name, None) is not None:
            self._rebuild_nodes(self._rules.put_node(name, None))

    def rebuild_node(self, name: str, *, has_other_cards: bool = False) -> None:
        """Recompute one node after any change to it."""
        self._changes.record_node_change(name)
        facts = self._facts.get(name)
        if facts is None:
            self._changes.cards_generation += 1
            self._nodes.pop(name, None)
            self._unasked_units.pop(name, None)
            self._reported_problems.forget_node(name)
            self._changes.forget_node(name, self._nodes.keys())
            return
        holds = self._build_holds(facts)
        before = self._nodes.get(name)
        known_cards = () if before is None or has_other_cards else before.cards
        self._nodes[name] = node = self._rules.build_node(facts, holds, known_cards)
        for problem in self._reported_problems.find_new_problems(node, holds):
            self._changes.tell_problem_found(problem)
        if has_other_cards and has_changed_cards(before, node):
            self._changes.cards_generation += 1
        unasked_before = self._unasked_units.get(name)
        self._unasked_units[name] = unasked = count_unasked_units(facts, holds)
        if has_gained_capacity(before, node) or has_gained_units(unasked_before, unasked):
            self._changes.record_capacity_gain(name)

    def _rebuild_nodes(self, names: Iterable[str]) -> None:
        """Rebuild nodes that have other cards, or of which other cards are reserved."""
        for name in sorted(names):
            self.rebuild_node(name, has_other_cards=True)

    def _build_without(self, name: str, is_left_out: Callable[[Hold], bool]) -> Node | None:
        """The node as it would be without some of what is held there."""
        facts = self._facts.get(name)
        if facts is None:
            return None
        return self._rules.build_node(facts, [hold for hold in self._build_holds(facts) if not is_left_out(hold)])

    def _build_holds(self, facts: NodeFacts) -> list[Hold]:
        cards = index_cards(facts)
        places = self._places.list_on_node(facts.name)
        return [
            *(build_bound_hold(pod, facts, cards) for pod in self._pods.list_on_node(facts.name)),
            *(build_reserved_hold(each.pod, each.allocation.cards, facts, cards, each.state) for each in places),
        ]
