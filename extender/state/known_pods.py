"""The pods that the ledger knows, by uid: those of each node, and those that are bound to none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, ValuesView
from typing import NamedTuple

from extender.state.namespaces import PlacementInForce
from extender.state.pods_by_node import PodsByNode
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey


class SettledPod(NamedTuple):
    """A pod, and the same pod as other settings read it."""

    before: Pod
    after: Pod


class KnownPods:
    """The latest state seen of each pod."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._bound = PodsByNode()
        self._bound_by_priority: Counter[int] = Counter()
        """How many pods of each priority are bound."""
        self._unbound: dict[str, None] = {}
        self._by_group: defaultdict[GroupKey, dict[str, None]] = defaultdict(dict)
        self._companions: dict[str, GroupKey] = {}
        """The groups of pods that are not known otherwise, because they hold no memory."""
        self._companion_counts: Counter[GroupKey] = Counter()

    def get_pod(self, uid: str) -> Pod | None:
        return self._pods.get(uid)

    def list_uids(self) -> frozenset[str]:
        """Those of companions too."""
        return frozenset(self._pods).union(self._companions)

    def list_pods(self) -> ValuesView[Pod]:
        """A live view."""
        return self._pods.values()

    def list_unbound(self) -> list[Pod]:
        return [self._pods[uid] for uid in self._unbound]

    def list_on_node(self, name: str) -> Collection[Pod]:
        return [self._pods[uid] for uid in self._bound.list_pods(name)]

    def has_pod_below(self, name: str, priority: int) -> bool:
        """Whether a pod of lower priority is bound to the node."""
        if all(each >= priority for each in self._bound_by_priority):
            return False
        return any(self._pods[uid].priority < priority for uid in self._bound.list_pods(name))

    def list_in_group(self, group: GroupKey) -> list[Pod]:
        return [self._pods[uid] for uid in self._by_group.get(group, ())]

    def count_companions(self, group: GroupKey) -> int:
        """How many pods of the group hold no memory, and have not finished."""
        return self._companion_counts[group]

    def put_companion(self, uid: str, group: GroupKey) -> None:
        """The pod holds no memory, but starts together with others that may."""
        self._remove_companion(uid)
        self._companions[uid] = group
        self._companion_counts[group] += 1

    def select_pods(self, uids: Iterable[str]) -> list[Pod]:
        """The pods with these uids, which must all be known."""
        return [self._pods[uid] for uid in uids]

    def settle_unbound(self, in_force: PlacementInForce, settled_pods: Mapping[str, SettledPod]) -> list[SettledPod]:
        """Apply these settings to the unbound pods; `settled_pods`, by uid, are those already read by them.

        Returns all of them.
        """
        return [self._settle(pod, in_force, settled_pods.get(pod.uid)) for pod in self.list_unbound()]

    def settle_namespace(self, name: str, in_force: PlacementInForce) -> list[SettledPod]:
        """Apply the settings again to the unbound pods of this namespace. Returns all of them."""
        return [self._settle(pod, in_force) for pod in self.list_unbound() if pod.namespace == name]

    def put_pod(self, pod: Pod) -> Pod | None:
        """Add or replace the pod. Returns what was known of it."""
        known = self._pods.get(pod.uid)
        self._remove_companion(pod.uid)
        self._pods[pod.uid] = pod
        if known is not None and known.group not in (None, pod.group):
            self._leave_group(known.group, pod.uid)
        if known is not None and known.node_name:
            self._leave_node(known)
        if pod.node_name:
            self._bound.add_pod(pod.node_name, pod.uid)
            self._bound_by_priority[pod.priority] += 1
            self._unbound.pop(pod.uid, None)
        else:
            self._unbound[pod.uid] = None
        if pod.group is not None:
            self._by_group[pod.group][pod.uid] = None
        return known

    def remove_pod(self, uid: str) -> Pod | None:
        """Remove the pod. Returns what was known of it."""
        pod = self._pods.pop(uid, None)
        self._remove_companion(uid)
        self._unbound.pop(uid, None)
        if pod is not None and pod.node_name:
            self._leave_node(pod)
        if pod is not None and pod.group is not None:
            self._leave_group(pod.group, uid)
        return pod

    def _remove_companion(self, uid: str) -> None:
        group = self._companions.pop(uid, None)
        if group is not None:
            self._companion_counts[group] -= 1
            if not self._companion_counts[group]:
                del self._companion_counts[group]

    def _leave_node(self, pod: Pod) -> None:
        self._bound.remove_pod(pod.node_name, pod.uid)
        self._bound_by_priority[pod.priority] -= 1
        if not self._bound_by_priority[pod.priority]:
            del self._bound_by_priority[pod.priority]

    def _leave_group(self, group: GroupKey, uid: str) -> None:
        members = self._by_group.get(group, {})
        members.pop(uid, None)
        if not members:
            self._by_group.pop(group, None)

    def _settle(self, pod: Pod, in_force: PlacementInForce, settled: SettledPod | None = None) -> SettledPod:
        if settled is None or settled.before is not pod or not in_force.has_labels_of(settled.after):
            settled = SettledPod(pod, in_force.resolve_pod(pod))
        self._pods[pod.uid] = settled.after
        return settled


def list_touched_nodes(known: Pod | None, pod: Pod | None) -> set[str]:
    """The nodes on which the two states of a pod hold something else; None stands for no pod."""
    if known is not None and pod is not None and _get_holding_fields(known) == _get_holding_fields(pod):
        return set()
    return {each.node_name for each in (known, pod) if each is not None and each.node_name}


def _get_holding_fields(pod: Pod) -> tuple[object, ...]:
    """The fields that decide what a bound pod holds, and for which tenant."""
    return pod.node_name, pod.record, pod.request, pod.rule_labels
