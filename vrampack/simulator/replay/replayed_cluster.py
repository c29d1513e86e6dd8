"""A cluster of a snapshot's nodes under one configuration: the extender's ledger, engine, policies, profiles and rules.

For each pod: the scheduler's own filters, the extender's best node among those that pass, its cards there, and the record that
the extender would write. It ignores preemption and what was kept for nominated pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from extender.settings import ExtenderConfiguration
from extender.state.ledger import Ledger
from extender.state.namespaces import NamespaceLabels, PlacementInForce
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from policies.engine.engine import Engine
from policies.engine.host_rooms import HostRooms
from policies.mix.forecast import build_forecast
from policies.mix.request_mix import LearnedMix
from policies.policy import ScoredCards
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPodSpec
from vrampack.kube.host_requests import read_host_request
from vrampack.kube.objects import to_node, to_pod
from vrampack.simulator.object_files import ObjectFileError
from vrampack.simulator.replay.cluster_snapshot import ClusterSnapshot, decode_pod_object
from vrampack.simulator.replay.hosts import ReplayedHosts
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.filters import decode_node
from vrampack.simulator.scheduling.pod_reporter import format_fit_error


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why a pod fits nowhere, in the words of the scheduler's event."""

    message: str


class ReplayedCluster:
    """The nodes of `snapshot`, with only those of its pods that ask for no cards."""

    def __init__(self, snapshot: ClusterSnapshot, settings: ExtenderConfiguration) -> None:
        settings = settings.settle_whole_cards(snapshot.unpaid_use)
        placement = settings.build_placement()
        self.settings = settings
        self.ledger = Ledger(unit_mib=settings.unit_mib, clock=lambda: 0.0, placement=placement)
        namespaces = _select_labels(snapshot.namespaces, placement.list_namespace_label_keys())
        self.ledger.exchange_placement(PlacementInForce(placement, namespaces), {})
        self.nodes = {node["metadata"]["name"]: node for node in snapshot.nodes}
        self._reads_hosts = settings.select_policies().reads_hosts
        self.rooms = HostRooms()
        examined = [_decode_node(node) for node in snapshot.nodes]
        self.hosts = ReplayedHosts(examined, self.rooms, settings.resources.memory)
        for pod in snapshot.others:
            self.hosts.hold_pod(decode_pod_object(pod).spec, pod["spec"]["nodeName"])
        for node in examined:
            self._add_node(node)
        nominator = Nominator(self.ledger, PendingPreemptions(self.ledger, clock=lambda: 0.0))
        self.engine = Engine(nominator, settings.select_policies(), hosts=self.rooms)
        self._learned = LearnedMix()
        self.engine.follow_nodes()

    def read_pod(self, item: Object) -> Pod:
        """The pod as unbound, with the rules and the profile that apply to it. Raises `ObjectFileError`."""
        obj = decode_pod_object(item)
        pod = to_pod(
            obj,
            resource=self.settings.resources.memory,
            label_keys=self.ledger.label_keys,
            host=read_host_request(obj.spec) if self._reads_hosts else None,
        )
        return self.ledger.in_force.resolve_pod(replace(pod, nominated_node="", preemption_node=""))

    def hold_pod(self, item: Object) -> None:
        """Add a bound pod where its record says."""
        pod = self.read_pod(item)
        self.ledger.update_pod(pod)
        self.hosts.hold_pod(decode_pod_object(item).spec, pod.node_name)

    def learn_requests(self, items: Iterable[Object]) -> None:
        """Let policies that look ahead know these pods."""
        for item in items:
            pod = self.read_pod(item)
            if pod.request is not None and pod.request.card_request.is_valid:
                self._learned.count_request(self.engine.build_mixed_request(pod.request))
        if self._learned.is_forecast_due and self.engine.has_policy_that_looks_ahead:
            self.engine.set_forecast(build_forecast(self._learned.take_mix(), self.engine.count_cards()))

    def place_pod(self, item: Object, pod: Pod) -> str | NoPlace:
        """Place the pod, read by `read_pod`, on its best node. Returns the node's name, or why it fits nowhere."""
        request = pod.request
        if request is None:
            return NoPlace("it asks for no cards")
        spec = decode_pod_object(item).spec
        name = next(iter(self.engine.rank_nodes(self.hosts.select_hosts(spec), request, pod.uid, 1)), None)
        if name is None:
            return NoPlace(request.problem or self._explain(spec, request, pod.uid))
        self.ledger.update_pod(replace(pod, node_name=name, record=self._build_record(name, request, pod.uid)))
        self.hosts.hold_pod(spec, name)
        return name

    def remove_pod(self, item: Object, name: str) -> None:
        """The pod has ended."""
        self.ledger.remove_pod(item["metadata"]["uid"])
        self.hosts.release_pod(decode_pod_object(item).spec, name)

    def list_card_uses(self) -> list[tuple[int, int]]:
        """Units and used units of every card that can take pods or has some."""
        return [
            (card.units, card.used_units)
            for node in self.ledger.list_nodes()
            for card in node.cards
            if card.used_units or (card.is_usable and node.placeable_cards)
        ]

    def list_running(self) -> list[int]:
        """The units of every pod on each card where it is known to be."""
        holds = (hold for name in self.ledger.list_node_names() for hold in self.ledger.list_holds(name))
        return [units for hold in holds if not hold.unplaced_reason for units in hold.units.values() if units]

    def _add_node(self, node: ExaminedNode) -> None:
        resources = self.settings.resources
        reading = to_node(
            node, unit_mib=self.settings.unit_mib, resource=resources.memory, count_resource=resources.count
        )
        self.ledger.update_node(reading.facts)

    def _build_record(self, name: str, request: PodRequest, uid: str) -> Record:
        evaluation, node = self.engine.evaluate_node(name, request, uid), self.ledger.get_node(name)
        if not isinstance(evaluation, ScoredCards) or node is None:
            raise TypeError(f"node {name} was ranked and does not fit")
        allocation = allocate_cards(node, evaluation.cards, request, reserve_mib=self.settings.reserve_mib)
        return Record("vrampack", allocation.cards)

    def _explain(self, spec: ExaminedPodSpec, request: PodRequest, uid: str) -> str:
        reasons = self.hosts.find_obstacles(spec)
        outcome = self.engine.filter_nodes([name for name in self.nodes if name not in reasons], request, uid)
        ours = [*outcome.unschedulable.values(), *outcome.unresolvable.values()]
        return format_fit_error(len(self.nodes), [*ours, *(reason for each in reasons.values() for reason in each)])


def _decode_node(item: Object) -> ExaminedNode:
    """Raises `ObjectFileError`."""
    try:
        return decode_node(item)
    except UNDECODABLE as error:
        name = item["metadata"]["name"]
        raise ObjectFileError(f"node {name} cannot be read: {error}; leave it out of the file") from error


def _select_labels(namespaces: Mapping[str, Mapping[str, str]], keys: frozenset[str]) -> NamespaceLabels:
    selected = NamespaceLabels(keys)
    for name, labels in namespaces.items():
        selected.put_labels(name, tuple(sorted((key, labels[key]) for key in keys & labels.keys())))
    return selected
