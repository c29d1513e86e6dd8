"""A cluster that takes pods one by one: the extender's ledger and engine, and hosts whose CPU and memory are checked.

kube-scheduler checks CPU and memory before it asks the extender, and so does this. As in the protocol of the FGD study, the
same policy places pods without cards, as a request for no cards on any node. The ledger does not know them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from policies.engine.engine import Engine
from policies.engine.host_rooms import HostRooms
from policies.mix.forecast import Forecast, build_forecast
from policies.mix.request_mix import LearnedMix, MixedRequest, RequestMix
from policies.policy import Policy, ScoredCards
from vrampack.cards.allocation import Allocation
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Card, CardFacts, NodeFacts, Share
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest, ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.simulator.packing.scheduler_choice import SchedulerChoice

NO_CARDS = CardRequest(units=0, count=0)
"""The request of a pod without cards."""


class SimulatedNode(NamedTuple):
    """A node before anything is placed on it."""

    name: str
    card_units: tuple[int, ...]
    model: str
    host: HostResources | None
    """None: unlimited CPU and memory."""


class SimulatedPod(NamedTuple):
    """What one pod asks for; equal values are interchangeable."""

    cards: CardRequest | None
    host: HostResources | None

    @property
    def units(self) -> int:
        return 0 if self.cards is None else self.cards.units * self.cards.count


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """The same policy for every pod."""

    policy: TunedPolicy

    def choose_policy(self, wish: str | None, profile: ProfileChoice | None = None) -> TunedPolicy:  # noqa: ARG002 - of the protocol
        return self.policy

    def list_policies(self) -> tuple[TunedPolicy, ...]:
        return (self.policy,)


class _FittingHosts:
    """The nodes whose host has room for a pod."""

    def __init__(self, rooms: Mapping[str, HostResources], wanted: HostResources) -> None:
        self._rooms = rooms
        self._cpu_milli, self._memory_mib = wanted

    def __contains__(self, name: object) -> bool:
        cpu_milli, memory_mib = self._rooms[name]  # type: ignore[index]  # the engine asks for names
        return cpu_milli >= self._cpu_milli and memory_mib >= self._memory_mib


class _AllNodes:
    def __contains__(self, name: object) -> bool:
        return True


class PackedCluster:
    """Places pods under one policy. `mix`: the usual requests that the policy is told; None: it learns from arrivals."""

    def __init__(
        self,
        nodes: Iterable[SimulatedNode],
        policy: TunedPolicy,
        mix: RequestMix | None,
        *,
        policies: Mapping[str, Policy],
        host_step: HostResources,
    ) -> None:
        self._ledger = Ledger(unit_mib=1024, clock=lambda: 0.0)
        self._host_rooms = HostRooms(host_step)
        self._rooms: dict[str, HostResources] = {}
        self._looks_ahead = policies[policy.name].TRAITS.looks_ahead
        nominator = Nominator(self._ledger, PendingPreemptions(self._ledger, clock=lambda: 0.0))
        self._engine = Engine(nominator, ChosenPolicy(policy), hosts=self._host_rooms, policies=policies)
        self._cards: dict[tuple[str, int], int] = {}
        for node in nodes:
            self._add_node(node)
        self._learned = LearnedMix() if mix is None and self._looks_ahead else None
        if mix is not None and self._looks_ahead:
            self._engine.set_forecast(self._build_forecast(mix))

    def follow_nodes(self) -> None:
        """Summarize all nodes ahead of the first pod, as the extender does before it is ready."""
        self._engine.follow_nodes()

    def place_pod(self, uid: str, pod: SimulatedPod) -> str | None:
        """Place the pod on the best node; its name, or None when the pod fits nowhere."""
        if self._learned is not None:
            self._learn(self._learned, pod)
        candidates = _AllNodes() if pod.host is None else _FittingHosts(self._rooms, pod.host)
        request = PodRequest(pod.cards or NO_CARDS, (), host=pod.host)
        name = self._choose_node(candidates, request, uid)
        return None if name is None else self._hold_pod(uid, pod, name, request)

    def _hold_pod(self, uid: str, pod: SimulatedPod, name: str, request: PodRequest) -> str:
        if pod.cards is not None:
            taken = tuple(
                Share(pod.cards.units, card.uuid, card.index) for card in self._choose_cards(name, request, uid)
            )
            self._ledger.assume(Pod(uid, "simulated", uid, request=request), name, Allocation(taken, ()))
        if pod.host is not None:
            self._change_room(name, -pod.host.cpu_milli, -pod.host.memory_mib)
        return name

    def remove_pod(self, uid: str, name: str, pod: SimulatedPod) -> None:
        """The pod has ended."""
        self._ledger.forget(uid, name)
        if pod.host is not None:
            self._change_room(name, pod.host.cpu_milli, pod.host.memory_mib)

    def list_card_uses(self) -> list[tuple[int, int]]:
        """Units and used units of every card."""
        return [(card.units, card.used_units) for node in self._ledger.list_nodes() for card in node.cards]

    def _choose_node(self, candidates: Container[str], request: PodRequest, uid: str) -> str | None:
        return next(iter(self._engine.rank_nodes(candidates, request, uid, 1)), None)

    def _choose_cards(self, name: str, request: PodRequest, uid: str) -> Sequence[Card]:
        evaluation = self._engine.evaluate_node(name, request, uid)
        if not isinstance(evaluation, ScoredCards):
            raise TypeError(f"node {name} was ranked and does not fit: {evaluation.reason.value}")
        return evaluation.cards

    def _add_node(self, node: SimulatedNode) -> None:
        cards = tuple(
            CardFacts(index, units, units * 1024, uuid=f"GPU-{node.name}-{index}", model=node.model)
            for index, units in enumerate(node.card_units)
        )
        self._ledger.update_node(NodeFacts(node.name, cards, unit_mib=1024))
        for units in node.card_units:
            self._cards[node.model, units] = self._cards.get((node.model, units), 0) + 1
        if node.host is not None:
            self._rooms[node.name] = node.host
            self._host_rooms.put_room(node.name, node.host)

    def _change_room(self, name: str, cpu_milli: int, memory_mib: int) -> None:
        room = self._rooms[name]
        self._rooms[name] = room = HostResources(room.cpu_milli + cpu_milli, room.memory_mib + memory_mib)
        self._host_rooms.put_room(name, room)

    def _learn(self, learned: LearnedMix, pod: SimulatedPod) -> None:
        if learned.is_forecast_due:
            self._engine.set_forecast(self._build_forecast(learned.take_mix()))
        learned.count_request(MixedRequest(pod.cards, pod.host))

    def _build_forecast(self, mix: RequestMix) -> Forecast:
        return build_forecast(mix, self._cards)


class SchedulerPlacedCluster(PackedCluster):
    """The same, but pods without cards are placed as kube-scheduler does it, which never asks the extender about them."""

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        policy: TunedPolicy,
        mix: RequestMix | None,
        *,
        policies: Mapping[str, Policy],
        host_step: HostResources,
        random: Random,
    ) -> None:
        super().__init__(nodes, policy, mix, policies=policies, host_step=host_step)
        self._choice = SchedulerChoice(dict(self._rooms), random)

    def place_pod(self, uid: str, pod: SimulatedPod) -> str | None:
        if pod.host is None:
            return super().place_pod(uid, pod)
        name = super().place_pod(uid, pod) if pod.cards is not None else self._place_by_scheduler(pod.host)
        if name is not None:
            self._choice.charge_host(name, pod.host)
        return name

    def _place_by_scheduler(self, request: HostResources) -> str | None:
        names = self._choice.list_feasible_nodes(request)
        if not names:
            return None
        name = self._choice.choose_node(names, request)
        self._change_room(name, -request.cpu_milli, -request.memory_mib)
        return name
