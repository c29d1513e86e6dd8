"""The two policies of the FGD study that do not score single nodes: `random`, and `gpu-clustering`.

The extender's table says which nodes fit, and this code chooses among them. Random numbers are seeded with the name of the
first node, which is drawn for each seed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from random import Random

from policies.mix.request_mix import RequestMix
from policies.policy import Policy
from vrampack.cards.fit import Unfit, find_fitting_cards
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card
from vrampack.cards.request import CardRequest, PodRequest
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing.packed_cluster import PackedCluster, SimulatedNode

MAX_MILLI = 8000
"""Eight cards: the largest node of the study."""


class _TableCluster(PackedCluster):
    """Asks for all nodes that fit."""

    def __init__(
        self,
        nodes: Iterable[SimulatedNode],
        policy: TunedPolicy,  # noqa: ARG002 - the cluster is the policy
        mix: RequestMix | None,
        *,
        policies: Mapping[str, Policy],
        host_step: HostResources,
    ) -> None:
        nodes = list(nodes)
        super().__init__(nodes, TunedPolicy("binpack"), mix, policies=policies, host_step=host_step)
        self._names = sorted(node.name for node in nodes)

    def _list_fitting_nodes(self, candidates: Container[str], request: PodRequest, uid: str) -> list[str]:
        passed = self._names
        if request.card_request.count:
            passed = self._engine.filter_nodes(self._names, request, uid).passed
        return [name for name in passed if name in candidates]


class RandomStudyCluster(_TableCluster):
    """Any node, and any of its cards."""

    def __init__(
        self,
        nodes: Iterable[SimulatedNode],
        policy: TunedPolicy,
        mix: RequestMix | None,
        *,
        policies: Mapping[str, Policy],
        host_step: HostResources,
    ) -> None:
        super().__init__(nodes, policy, mix, policies=policies, host_step=host_step)
        self._random = Random(self._names[0])  # noqa: S311 - for a simulation

    def _choose_node(self, candidates: Container[str], request: PodRequest, uid: str) -> str | None:
        names = self._list_fitting_nodes(candidates, request, uid)
        return self._random.choice(names) if names else None

    def _choose_cards(self, name: str, request: PodRequest, uid: str) -> Sequence[Card]:  # noqa: ARG002 - of the base
        node = self._ledger.get_node(name)
        fitting = Unfit if node is None else find_fitting_cards(node, request.card_request)
        if not isinstance(fitting, tuple):
            raise TypeError(f"node {name} was chosen and does not fit")
        return self._random.sample(fitting, request.card_request.count)


class ClusteringStudyCluster(_TableCluster):
    """Nodes with pods of the same kind only come first, then those with that kind among others, then empty ones; fuller first."""

    def __init__(
        self,
        nodes: Iterable[SimulatedNode],
        policy: TunedPolicy,
        mix: RequestMix | None,
        *,
        policies: Mapping[str, Policy],
        host_step: HostResources,
    ) -> None:
        super().__init__(nodes, policy, mix, policies=policies, host_step=host_step)
        self._kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The kinds of the pods on each node."""

    def _choose_node(self, candidates: Container[str], request: PodRequest, uid: str) -> str | None:
        names = self._list_fitting_nodes(candidates, request, uid)
        if not names or not request.card_request.count:
            return names[0] if names else None
        kind = _get_kind(request.card_request)
        name = max(names, key=lambda each: self._rate_node(each, kind))
        self._kinds[name][kind] += 1
        return name

    def _rate_node(self, name: str, kind: str) -> int:
        node, kinds = self._ledger.get_node(name), self._kinds[name]
        left = MAX_MILLI if node is None else node.free_units
        band = 25 * (MAX_MILLI - left) // MAX_MILLI
        if kinds[kind]:
            return band + (75 if len(+kinds) == 1 else 50)
        return band + (0 if +kinds else 25)


def _get_kind(request: CardRequest) -> str:
    return "shared" if request.units < MAX_MILLI / 8 else f"{request.count} cards"


STUDY_CLUSTERS: dict[str, type[PackedCluster]] = {
    "random": RandomStudyCluster,
    "gpu-clustering": ClusteringStudyCluster,
}
