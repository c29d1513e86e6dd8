"""Bugs that the brute force must find: caches that forget what they depend on, and places that are freed too early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from extender.scheduling.bind_outcome import BindOutcome
from extender.scheduling.binding import Binder
from extender.scheduling.rejection_cache import CachedRejection, RejectionGeneration
from extender.state.ledger import Ledger
from extender.state.ledger_changes import LedgerChanges
from extender.state.nominator import Nominator
from tests.simulation.bugs import BUGS as SIMULATED_BUGS
from vrampack.cards import shape
from vrampack.cards.allocation import Allocation
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.rules import PlacementRules
from vrampack.cards.shape import FitClass, FitClasses, Shape

Patch = pytest.MonkeyPatch


def group_nodes_by_their_set_of_models(patch: Patch) -> None:
    """Nodes with cards A, B, B and A, A, B of one size are not alike for a request for two of A."""
    measure = FitClasses._measure_class

    def measure_once(self: FitClasses, like: Shape, *, counts_instances: bool) -> FitClass:
        return self._by_hardware.setdefault(like.hardware, measure(self, like, counts_instances=counts_instances))

    patch.setattr(FitClasses, "_measure_class", measure_once)


def leave_reserves_out_of_the_kind_of_a_request(patch: Patch) -> None:
    """Pods that may use a reserve, and pods that may not, find the same cards."""
    get_kind = shape.get_request_kind

    def get_short_kind(request: CardRequest) -> CardRequest:
        kind = get_kind(request)
        return kind if kind.rules is None else replace(kind, rules=kind.rules._replace(reserves=frozenset()))

    patch.setattr("policies.engine.fit_index.get_request_kind", get_short_kind)


def answer_from_the_cache_whatever_changed(patch: Patch) -> None:
    def matches(self: CachedRejection, names: list[str], _: RejectionGeneration) -> bool:
        return self.names == frozenset(names)

    patch.setattr(CachedRejection, "matches_call", matches)


def keep_cards_from_nobody(patch: Patch) -> None:
    patch.setattr(Nominator, "get_priority_floor", lambda *_: None)


def keep_cards_from_equal_pods_only_if_lower(patch: Patch) -> None:
    """A nominee's cards are free for pods of its own priority."""
    floor = Nominator.get_priority_floor
    patch.setattr(
        Nominator,
        "get_priority_floor",
        lambda self, uid: found if (found := floor(self, uid)) != self._get_priority(uid) else None,
    )


def keep_the_cards_of_an_earlier_nomination(patch: Patch) -> None:
    """The node is not looked at again when its nominees change."""
    patch.setattr(Ledger, "_update_nomination", lambda self, known, pod: self.nominations.replace_pod(known, pod))


def place_pods_on_another_unit(patch: Patch) -> None:
    def find_problem(facts: NodeFacts, *, unit_mib: int) -> str:
        return facts.problem

    patch.setattr("vrampack.cards.node.find_node_problem", find_problem)


def count_no_pod_of_a_terminating_one(patch: Patch) -> None:
    put = Ledger._put_pod

    def put_staying(self: Ledger, pod: Pod) -> None:
        if pod.is_terminating:
            self.remove_pod(pod.uid)
        else:
            put(self, pod)

    patch.setattr(Ledger, "_put_pod", put_staying)


def share_with_pods_without_the_label(patch: Patch) -> None:
    find = PlacementRules.find_tenant
    patch.setattr(PlacementRules, "find_tenant", lambda self, pod: find(self, pod) or None)


def leave_nodes_as_they_were_under_the_old_rules(patch: Patch) -> None:
    """A reload puts its nodes into force, and the engine is told of none."""
    patch.setattr(LedgerChanges, "record_all_changed", lambda *_: None)


def bind_a_pod_that_changed_by_its_earlier_labels(patch: Patch) -> None:
    """The Binding was refused because the pod has another version, and is sent again with the cards that it named."""
    reserve = Binder._reserve_cards

    def reserve_once(self: Binder, pod: Pod, pod_request: PodRequest, node: Node) -> Allocation | BindOutcome:
        earlier = self._ledger.places.get_reservation_on(pod.uid, node.name)
        return reserve(self, pod, pod_request, node) if earlier is None else earlier.allocation

    patch.setattr(Binder, "_reserve_cards", reserve_once)


BUGS: Mapping[str, Callable[[Patch], None]] = {
    bug.__name__.replace("_", " "): bug
    for bug in (
        group_nodes_by_their_set_of_models,
        leave_reserves_out_of_the_kind_of_a_request,
        answer_from_the_cache_whatever_changed,
        keep_cards_from_nobody,
        keep_cards_from_equal_pods_only_if_lower,
        keep_the_cards_of_an_earlier_nomination,
        place_pods_on_another_unit,
        count_no_pod_of_a_terminating_one,
        share_with_pods_without_the_label,
        leave_nodes_as_they_were_under_the_old_rules,
        bind_a_pod_that_changed_by_its_earlier_labels,
    )
} | {
    name: SIMULATED_BUGS[name]
    for name in (
        "free a written place when the bind is repeated",
        "forget when no answer came",
        "take any 404 for gone",
        "take any success for a yes",
    )
}
