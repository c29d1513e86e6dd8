"""The cluster as the extender would count it after a fresh list: every node with its cards and who holds them.

What a running extender has reserved and the API server does not show yet is not in it; it lasts milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from extender.settings import ExtenderConfiguration
from vrampack.cards.holding import Hold, build_node_from_holds, list_holds
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.units import parse_units
from vrampack.cli.explain.pod import NodeWords, PodWords
from vrampack.kube.client import Api, Resource
from vrampack.kube.errors import NoAnswerError, ResourceExpiredError
from vrampack.kube.objects import UNDECODABLE, ListMeta, NodeObject, PodObject, to_node, to_pod

PAGE_SIZE = 500
"""As the extender's own lists: a page of pods is about 2 MB."""


class _RawPage(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(_RawPage)
_NODE = msgspec.json.Decoder(NodeObject)
_NODE_WORDS = msgspec.json.Decoder(NodeWords)
_POD = msgspec.json.Decoder(PodObject)
_POD_WORDS = msgspec.json.Decoder(PodWords)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as it was listed."""

    facts: NodeFacts
    words: NodeWords
    labels: Mapping[str, str]
    advertised_units: int
    """Units that kubelet offers in `status.allocatable`: what the scheduler itself counts with."""


@dataclass(frozen=True, slots=True)
class CountedNode:
    """A node and who holds what there, in the order of namespace and name."""

    seen: SeenNode
    node: Node
    holds: tuple[Hold, ...]


@dataclass(slots=True)
class Listed:
    """What the two lists said."""

    nodes: dict[str, SeenNode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """Bound pods that hold memory, by uid."""
    schedulers: Counter[str] = field(default_factory=Counter)
    """Through whom the pods came that carry a record of ours."""
    unread: list[str] = field(default_factory=list)


class Cluster:
    """Every node, counted."""

    def __init__(self, listed: Listed, unit_mib: int) -> None:
        self.schedulers = listed.schedulers
        self.unread = tuple(listed.unread)
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in listed.pods.values():
            pods[pod.node_name].append(pod)
        self.nodes = {name: _counted(seen, pods.get(name, ()), unit_mib) for name, seen in sorted(listed.nodes.items())}


async def read_cluster(api: Api, settings: ExtenderConfiguration) -> Cluster:
    """List all nodes and pods. Raises `RefusedError` or `NoAnswerError`."""
    listed = Listed()
    listed.nodes = await read_nodes(api, settings, listed.unread)
    try:
        await _read_pods(api, settings, listed)
    except ResourceExpiredError:  # a list of more than five minutes: once more from its start
        await _read_pods(api, settings, listed)
    return Cluster(listed, settings.unit_mib)


async def read_nodes(api: Api, settings: ExtenderConfiguration, unread: list[str]) -> dict[str, SeenNode]:
    """All nodes by name; those that cannot be decoded are named in `unread`."""
    nodes = {}
    async for raw in _items(api, "nodes"):
        try:
            node = _seen(_NODE.decode(raw), _NODE_WORDS.decode(raw), settings)
        except UNDECODABLE as error:
            unread.append(f"a node cannot be decoded and is left out: {error}")
        else:
            nodes[node.facts.name] = node
    return nodes


async def _read_pods(api: Api, settings: ExtenderConfiguration, listed: Listed) -> None:
    listed.pods.clear()
    listed.schedulers.clear()
    async for raw in _items(api, "pods"):
        try:
            pod = to_pod(_POD.decode(raw), resource=settings.resources.memory)
            is_recorded = isinstance(pod.record, Record) and pod.record.is_ours
            words = _POD_WORDS.decode(raw) if is_recorded else None
        except UNDECODABLE as error:
            listed.unread.append(f"a pod cannot be decoded and is left out: {error}")
            continue
        if pod.holds_memory:
            listed.pods[pod.uid] = pod
            if words is not None:
                listed.schedulers[words.scheduler_name] += 1


async def _items(api: Api, resource: Resource) -> AsyncIterator[msgspec.Raw]:
    token = ""
    while True:
        body = await api.list_page(resource, limit=PAGE_SIZE, token=token)
        try:
            page = _PAGE.decode(body)
        except UNDECODABLE as error:
            raise NoAnswerError(f"list {resource}: not a list: {error}") from error
        for item in page.items or ():
            yield item
        token = page.metadata.continue_
        if not token:
            return


def _seen(node: NodeObject, words: NodeWords, settings: ExtenderConfiguration) -> SeenNode:
    memory, count = settings.resources.memory, settings.resources.count
    reading = to_node(node, unit_mib=settings.unit_mib, resource=memory, count_resource=count)
    offered = (node.status.allocatable or {}).get(memory, msgspec.Raw(b'"0"'))
    return SeenNode(reading.facts, words, node.metadata.labels or {}, _units(offered))


def _units(quantity: msgspec.Raw) -> int:
    try:
        return parse_units(str(msgspec.json.decode(quantity)))
    except ValueError:
        return 0


def _counted(seen: SeenNode, pods: Iterable[Pod], unit_mib: int) -> CountedNode:
    holds = list_holds(seen.facts, pods)
    return CountedNode(seen, build_node_from_holds(seen.facts, holds, unit_mib=unit_mib), tuple(holds))
