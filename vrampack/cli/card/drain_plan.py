"""What a drain of cards would need: the pods that hold memory there, which controllers recreate them, and where they would fit.

Pure. A replay of the cluster (`simulator/replay`) finds the room: every other pod stays where it is, the drained cards
are cordoned, and the pods on them are placed again one by one, the largest first, as if each had been evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.settings import ExtenderConfiguration
from vrampack.cards import well_known
from vrampack.cards.holding import Hold
from vrampack.cli.card.disruption_budgets import DisruptionBudget
from vrampack.simulator.replay.cluster_snapshot import ClusterSnapshot, unbind_pod
from vrampack.simulator.replay.replayed_cluster import NoPlace, ReplayedCluster
from vrampack.simulator.resource_kinds import Object

MIRROR_OWNER = "Node"
"""The owner kind of a static pod's mirror in the API server."""
STAYING_OWNER = "DaemonSet"


@dataclass(frozen=True, slots=True)
class DrainedPod:
    """One pod that holds memory of a drained card."""

    namespace: str
    name: str
    units: int
    """Its units on the drained cards."""
    cards: tuple[int, ...]
    """The indices of the drained cards that it is on; empty if its card is not known."""
    controller: str
    """`Kind/name`; empty if nothing recreates it."""
    budgets: tuple[str, ...]
    """The budgets that cover it, in words, with how many evictions each allows now."""
    is_blocked: bool
    """Whether a budget allows no eviction."""
    is_terminating: bool
    target: str
    """The node on which it would fit; empty if none."""
    obstacle: str
    """Why it would fit on none, in the scheduler's words."""


@dataclass(frozen=True, slots=True)
class PodOwnership:
    """The facts about a pod that a snapshot omits."""

    controller: str
    labels: Mapping[str, str]


def read_ownership(pod: Object) -> PodOwnership:
    """The controller among the owners, and the labels."""
    metadata = pod.get("metadata") or {}
    owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    return PodOwnership(f"{owners[0]['kind']}/{owners[0]['name']}" if owners else "", metadata.get("labels") or {})


def plan_drain(
    snapshot: ClusterSnapshot,
    settings: ExtenderConfiguration,
    *,
    node_name: str,
    uuids: Collection[str],
    owners: Mapping[tuple[str, str], PodOwnership],
    budgets: Sequence[DisruptionBudget],
) -> list[DrainedPod]:
    """The pods on these cards of this node, the largest first. Raises `ObjectFileError` for an object that cannot be read."""
    cluster = ReplayedCluster(_cordon_cards(snapshot, node_name, uuids), settings)
    for item in snapshot.bound:
        cluster.hold_pod(item)
    cluster.learn_requests([*snapshot.bound, *snapshot.waiting])
    items = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in snapshot.bound}
    drained = {
        (hold.pod.namespace, hold.pod.name): (hold, cards) for hold, cards in _list_holds_on(cluster, node_name, uuids)
    }
    ordered = sorted(drained.items(), key=lambda each: (-_count_units(*each[1]), each[0]))
    targets = _place_again(cluster, [items[name] for name, _ in ordered], node_name)
    return [
        _build_drained_pod(hold, cards, targets[name], owners.get(name, PodOwnership("", {})), budgets)
        for name, (hold, cards) in ordered
    ]


def _cordon_cards(snapshot: ClusterSnapshot, node_name: str, uuids: Collection[str]) -> ClusterSnapshot:
    def cordon(node: Object) -> Object:
        if node["metadata"]["name"] != node_name:
            return node
        annotations = node["metadata"].get("annotations") or {}
        both = ",".join(filter(None, (annotations.get(well_known.CORDONED_CARDS), *sorted(uuids))))
        return {
            **node,
            "metadata": {**node["metadata"], "annotations": {**annotations, well_known.CORDONED_CARDS: both}},
        }

    return replace(snapshot, nodes=tuple(map(cordon, snapshot.nodes)))


def _list_holds_on(
    cluster: ReplayedCluster, node_name: str, uuids: Collection[str]
) -> Iterable[tuple[Hold, tuple[int, ...]]]:
    """Each hold on drained cards, with the indices of those cards. A pod on no known card may be on any of them."""
    node = cluster.ledger.get_node(node_name)
    indices = {card.index for card in node.cards if card.uuid in uuids} if node is not None else set[int]()
    for hold in cluster.ledger.list_holds(node_name):
        held = {index for index, units in hold.units.items() if units} & indices
        if hold.unplaced_reason:
            yield hold, ()
        elif held:
            yield hold, tuple(sorted(held))


def _count_units(hold: Hold, cards: tuple[int, ...]) -> int:
    return sum(hold.units[index] for index in cards) if cards else max(hold.units.values(), default=0)


def _place_again(
    cluster: ReplayedCluster, items: Sequence[Object], node_name: str
) -> Mapping[tuple[str, str], str | NoPlace]:
    """Where each pod fits after those before it have moved."""
    targets: dict[tuple[str, str], str | NoPlace] = {}
    for item in items:
        metadata = item["metadata"]
        cluster.remove_pod(item, node_name)
        again = unbind_pod(item)
        target = cluster.place_pod(again, cluster.read_pod(again))
        targets[metadata["namespace"], metadata["name"]] = target
        if isinstance(target, NoPlace):
            cluster.hold_pod(item)
    return targets


def _build_drained_pod(
    hold: Hold,
    cards: tuple[int, ...],
    target: str | NoPlace,
    ownership: PodOwnership,
    budgets: Iterable[DisruptionBudget],
) -> DrainedPod:
    pod = hold.pod
    covering = [each for each in budgets if each.covers_pod(pod.namespace, ownership.labels)]
    return DrainedPod(
        pod.namespace,
        pod.name,
        _count_units(hold, cards),
        cards,
        ownership.controller,
        tuple(f"budget {each.name} allows {each.allowed} evictions" for each in covering),
        any(each.allowed == 0 for each in covering),
        pod.is_terminating,
        "" if isinstance(target, NoPlace) else target,
        target.message if isinstance(target, NoPlace) else "",
    )


def describe_step(pod: DrainedPod) -> str:
    """What the operator should do with the pod."""
    kind = pod.controller.partition("/")[0]
    if pod.is_terminating:
        return "wait: it is being deleted"
    if kind == MIRROR_OWNER:
        return "it is a static pod: remove its file on the node"
    if pod.target:
        return _describe_move(pod)
    if kind == STAYING_OWNER:
        return (
            f"{pod.controller} recreates it on this node only, where it has no room: change the DaemonSet, or leave it"
        )
    return "make room first: its replacement would wait"


def _describe_move(pod: DrainedPod) -> str:
    delete = f"`kubectl -n {pod.namespace} delete pod {pod.name}`"
    if not pod.controller:
        return f"nothing recreates it: keep its manifest, {delete}, create it again; it has room on {pod.target}"
    then = f"{delete}: {pod.controller} recreates it, with room on {pod.target}"
    return f"not now ({', '.join(pod.budgets)}); then {then}" if pod.is_blocked else then
