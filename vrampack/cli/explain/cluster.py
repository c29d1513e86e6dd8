"""The cluster as the extender would count it after a fresh list: every node with its cards and the pods that hold them.

It lacks reservations of a running extender that the API server does not show yet; these last milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field

import msgspec

from extender.settings import ExtenderConfiguration
from extender.state.host_usage import HostUsage
from vrampack.cards.holding import Hold, build_node_from_holds, list_holds
from vrampack.cards.host_room import HostResources
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.payment import find_unpaid_use
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import PodRequest
from vrampack.cards.rules import NO_RULES, PlacementRules, assign_reserved_cards
from vrampack.cli.explain.pod import ExplainedPod, PodSchedulingFields, build_explained_pod
from vrampack.kube.api_caller import Resource
from vrampack.kube.client import Api
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import ResourceExpiredError
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPod
from vrampack.kube.host_requests import read_allocatable_host
from vrampack.kube.list_page import ListPage
from vrampack.kube.list_pager import list_pages
from vrampack.kube.node_filters import Amounts, HostUse, read_allocatable, read_host_use
from vrampack.kube.objects import ObjectMeta, to_node, to_pod

ALL_NAMESPACES = ("",)

_PAGE = msgspec.json.Decoder(ListPage[msgspec.Raw])
_NODE = msgspec.json.Decoder(ExaminedNode)
_POD = msgspec.json.Decoder(ExaminedPod)
_POD_FIELDS = msgspec.json.Decoder(PodSchedulingFields)


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node as it was listed."""

    facts: NodeFacts
    examined: ExaminedNode
    """Its labels and taints."""
    allocatable: Amounts
    host: HostResources | None
    """CPU and memory that kubelet offers, for policies; None if it does not say."""


@dataclass(frozen=True, slots=True)
class NodeWithHolds:
    """A node and which pods hold what there, in the order of namespace and name."""

    listed: ListedNode
    node: Node
    holds: tuple[Hold, ...]
    used: HostUse
    """By all pods there, besides cards."""


@dataclass(slots=True)
class ClusterListing:
    """What the two lists contained."""

    nodes: dict[str, ListedNode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """Bound pods that hold memory, by uid."""
    requests: list[PodRequest] = field(default_factory=list)
    """The requests of all unfinished pods that ask for memory, waiting ones included."""
    waiting_pods: list[ExplainedPod] = field(default_factory=list)
    """Pods that ask for memory and have no node, without those that are being deleted."""
    host_uses: dict[str, HostUse] = field(default_factory=dict)
    """What all pods on a node take of it, by its name."""
    hosts: HostUsage = field(default_factory=lambda: HostUsage(is_kept=False))
    pods_by_scheduler: Counter[str] = field(default_factory=Counter)
    """The schedulers of the pods that carry a record of ours."""
    unread_objects: list[str] = field(default_factory=list)


class ExplainedCluster:
    """Every node, with what its pods hold."""

    def __init__(self, listed: ClusterListing, unit_mib: int, rules: PlacementRules = NO_RULES) -> None:
        self.pods_by_scheduler = listed.pods_by_scheduler
        self.requests = tuple(listed.requests)
        self.waiting_pods = tuple(sorted(listed.waiting_pods, key=lambda each: (each.pod.created_at, str(each.pod))))
        self.hosts = listed.hosts
        self.unread_objects = tuple(listed.unread_objects)
        self.unpaid_use = find_unpaid_use(listed.pods.values())
        """Why whole cards need not be paid for, if the settings leave it open."""
        self.pods_elsewhere = tuple(
            sorted((each for each in listed.pods.values() if each.node_name not in listed.nodes), key=str)
        )
        """Bound pods whose node is not listed: it is gone, or the reader may not list nodes."""
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in listed.pods.values():
            pods[pod.node_name].append(pod)
        reserves = assign_reserved_cards(
            (seen.facts for seen in listed.nodes.values()), rules.reserves, unit_mib=unit_mib
        )
        self.nodes = {
            name: _count_holds(
                seen, pods.get(name, ()), unit_mib, rules, reserves.get(name, {}), listed.host_uses.get(name, HostUse())
            )
            for name, seen in sorted(listed.nodes.items())
        }

    def replace_nodes(self, nodes: Mapping[str, NodeWithHolds]) -> ExplainedCluster:
        """The same with these in place of those of their names."""
        changed = copy(self)
        changed.nodes = {**self.nodes, **nodes}
        return changed


async def read_cluster(
    api: Api, settings: ExtenderConfiguration, namespaces: Collection[str] = ALL_NAMESPACES, *, with_nodes: bool = True
) -> ExplainedCluster:
    """List all nodes, and the pods of these namespaces. Raises `RefusedError` or `NoAnswerError`."""
    listed = ClusterListing()
    if with_nodes:
        listed.nodes = await read_nodes(api, settings, listed.unread_objects)
    try:
        await _read_pods(api, settings, listed, namespaces)
    except ResourceExpiredError:  # the list took more than five minutes: start again once
        await _read_pods(api, settings, listed, namespaces)
    return ExplainedCluster(listed, settings.unit_mib, settings.rules.build_rules())


async def read_nodes(api: Api, settings: ExtenderConfiguration, unread_objects: list[str]) -> dict[str, ListedNode]:
    """All nodes by name; those that cannot be decoded are named in `unread_objects`."""
    nodes: dict[str, ListedNode] = {}
    async for raw in list_items(api, "nodes"):
        _add_node(nodes, raw, settings, unread_objects)
    return nodes


async def _read_pods(
    api: Api, settings: ExtenderConfiguration, listed: ClusterListing, namespaces: Collection[str]
) -> None:
    counter = _PodCounter(listed, settings)
    async for raw in _list_pods(api, namespaces):
        counter.count_pod(raw)
    counter.end_list()


def count_listed_cluster(
    nodes: Iterable[msgspec.Raw], pods: Iterable[msgspec.Raw], settings: ExtenderConfiguration
) -> ExplainedCluster:
    """The same from objects that were listed before."""
    listed = ClusterListing()
    for raw in nodes:
        _add_node(listed.nodes, raw, settings, listed.unread_objects)
    counter = _PodCounter(listed, settings)
    for raw in pods:
        counter.count_pod(raw)
    counter.end_list()
    return ExplainedCluster(listed, settings.unit_mib, settings.rules.build_rules())


class _PodCounter:
    """Clears the listing's pods, then counts those of one list."""

    def __init__(self, listed: ClusterListing, settings: ExtenderConfiguration) -> None:
        self._listed = listed
        self._label_keys = settings.rules.build_rules().list_label_keys()
        self._resource = settings.resources.memory
        listed.pods.clear()
        listed.pods_by_scheduler.clear()
        listed.requests.clear()
        listed.waiting_pods.clear()
        listed.host_uses.clear()
        listed.hosts = HostUsage(is_kept=settings.select_policies().reads_hosts)
        self._known_hosts = listed.hosts.begin_list()
        for name, node in listed.nodes.items() if self._known_hosts is not None else ():
            listed.hosts.update_host(name, node.host)

    def count_pod(self, raw: msgspec.Raw) -> None:
        listed = self._listed
        try:
            obj = _POD.decode(raw)
            host = listed.hosts.read_request(obj.spec)
            pod = to_pod(obj, resource=self._resource, label_keys=self._label_keys, host=host)
            is_recorded = isinstance(pod.record, Record) and pod.record.is_ours
            is_waiting = pod.request is not None and not (pod.node_name or pod.is_finished or pod.is_terminating)
            scheduling_fields = _POD_FIELDS.decode(raw) if is_recorded else None
            if is_waiting:
                listed.waiting_pods.append(_build_waiting_pod(pod, bytes(raw)))
        except UNDECODABLE as error:
            listed.unread_objects.append(f"a pod cannot be decoded and is left out: {error}")
            return
        listed.hosts.update_pod(obj)
        if pod.request is not None and not pod.is_finished:
            listed.requests.append(pod.request)
        if pod.node_name and not pod.is_finished:
            used = listed.host_uses.get(pod.node_name, HostUse())
            listed.host_uses[pod.node_name] = used + read_host_use(obj.spec)
        if pod.holds_memory:
            listed.pods[pod.uid] = pod
            if scheduling_fields is not None:
                listed.pods_by_scheduler[scheduling_fields.scheduler_name] += 1

    def end_list(self) -> None:
        self._listed.hosts.end_list(self._known_hosts, self._listed.pods)


def _build_waiting_pod(pod: Pod, body: bytes) -> ExplainedPod:
    """Of a copy of the pod: it is kept, and its page is not."""
    return build_explained_pod(pod, _POD_FIELDS.decode(body), _POD.decode(body))


def _add_node(
    nodes: dict[str, ListedNode], raw: msgspec.Raw, settings: ExtenderConfiguration, unread_objects: list[str]
) -> None:
    try:
        node = to_listed_node(_NODE.decode(raw), settings)
    except UNDECODABLE as error:
        unread_objects.append(f"a node cannot be decoded and is left out: {error}")
    else:
        nodes[node.facts.name] = node


async def _list_pods(api: Api, namespaces: Collection[str]) -> AsyncIterator[msgspec.Raw]:
    for namespace in namespaces:
        async for raw in list_items(api, "pods", namespace):
            yield raw


async def list_items(api: Api, resource: Resource, namespace: str = "") -> AsyncIterator[msgspec.Raw]:
    """Every object of the cluster, or of a namespace, page by page. Do not keep them: each keeps its whole page.

    Raises `RefusedError`, `NoAnswerError`, or `ResourceExpiredError` if a page is requested too late.
    """
    async for page in list_pages(api, resource, _PAGE, namespace=namespace):
        for item in page.items or ():
            yield item


def to_listed_node(node: ExaminedNode, settings: ExtenderConfiguration) -> ListedNode:
    """The node as these settings read it."""
    memory, count = settings.resources.memory, settings.resources.count
    reading = to_node(node, unit_mib=settings.unit_mib, resource=memory, count_resource=count)
    examined = ExaminedNode(ObjectMeta(name=node.metadata.name, labels=node.metadata.labels), spec=node.spec)
    return ListedNode(reading.facts, examined, read_allocatable(node), read_allocatable_host(node))


def _count_holds(
    seen: ListedNode,
    pods: Iterable[Pod],
    unit_mib: int,
    rules: PlacementRules,
    reserves: Mapping[int, int],
    used: HostUse,
) -> NodeWithHolds:
    holds = list_holds(seen.facts, pods)
    node = build_node_from_holds(seen.facts, holds, unit_mib=unit_mib, rules=rules, reserves=reserves)
    return NodeWithHolds(seen, node, tuple(holds), used)
