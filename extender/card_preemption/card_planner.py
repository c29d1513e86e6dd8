"""Finds for a waiting pod the node, and there the pods, whose eviction frees its cards. It changes nothing.

The nodes are those of the pod's last call of filter: they passed all of the scheduler's own filters. The victims are those that the
verb preempt would add. The few best nodes are read from the API server as they are now, because the call may be minutes old, and
because the ledger does not know who owns a pod.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from extender.preemption.node_victims import NodeVictims
from extender.preemption.victims import VictimOrder, get_victim_order
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from vrampack.cards.holding import Hold
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest
from vrampack.kube.answers import decode_answer
from vrampack.kube.client import Api
from vrampack.kube.errors import ForeignAnswerError
from vrampack.kube.examined_objects import ExaminedPod
from vrampack.kube.late_binding import GROUP_LABEL
from vrampack.kube.node_filters import find_node_obstacle
from vrampack.kube.node_reader import read_node_state

MAX_CHECKED_NODES = 4
"""For each a node and its pods are read; a plan that fails on all of them is tried again later."""
CALL_SECONDS = 5.0
CRITICAL_PRIORITY = 2_000_000_000
"""Of the class system-cluster-critical; people may use priorities up to half of it."""
KUEUE_PREFIX = "kueue.x-k8s.io/"
DEFAULT_GRACE_SECONDS = 30
_NULL = msgspec.Raw(b"null")


class CardPlan(NamedTuple):
    """Without victims: pods that are ending already free the cards."""

    pod: Pod
    node_name: str
    victims: tuple[Pod, ...]
    grace_seconds: float
    """How long the victims may take to end."""
    names: Collection[str] = ()
    """The nodes that the pod's scheduler named."""
    avoided: Collection[str] = ()
    """Those of them that were left out."""
    generation: int = 0
    """Of the ledger, when the first of them was looked at."""


class NoPlan(NamedTuple):
    """Why there is none, for people; empty if there is nothing to tell."""

    reason: str = ""
    failed_names: tuple[str, ...] = ()
    """Nodes that were read, and do not do."""
    is_lasting: bool = False
    """Whether no other node would do either, as long as the pod is the same."""


class _Candidate(NamedTuple):
    is_elsewhere: bool
    """Whether it is another node than the one for which an earlier process may have evicted pods."""
    order: VictimOrder
    name: str
    is_read: bool = False
    """Whether the API server was asked about the node: what it said may be old when the node is taken from the heap."""


class CardPlanner:
    """Over one ledger, and the API server that fills it."""

    def __init__(self, ledger: Ledger, nominator: Nominator, api: Api) -> None:
        self._ledger = ledger
        self._nominator = nominator
        self._victims = NodeVictims(ledger, nominator)
        self._api = api

    async def find_plan(
        self, pod: Pod, names: Collection[str], avoided: Collection[str] = frozenset()
    ) -> CardPlan | NoPlan:
        """The victims are right at the moment of the answer, and on no `avoided` node. Raises `RefusedError` or `NoAnswerError`."""
        asking = await self._read_pod(pod)
        if isinstance(asking, NoPlan):
            return asking
        if pod.request is None:
            return NoPlan()
        await self._nominator.catch_up()
        generation = self._ledger.generation
        candidates = await self._list_candidates(pod, pod.request.card_request, names, avoided)
        if candidates is None:
            return NoPlan()
        if not candidates:
            return NoPlan("" if avoided else "no pods of a lower priority would free its cards")
        plan = await self._choose_candidate(asking, pod, pod.request.card_request, candidates)
        if isinstance(plan, NoPlan):
            return plan
        return plan._replace(names=names, avoided=avoided, generation=generation)

    async def _read_pod(self, pod: Pod) -> ExaminedPod | NoPlan:
        """Unless no pod is to be evicted for it."""
        body = await self._api.get_pod_bytes(pod.namespace, pod.name, timeout_seconds=CALL_SECONDS)
        if body is None:
            return NoPlan()
        asking = decode_answer(body, ExaminedPod, f"get pod {pod}")
        if asking.metadata.uid != pod.uid or asking.spec.node_name:
            return NoPlan()
        reason = describe_unplannable(asking)
        return NoPlan(reason, is_lasting=True) if reason else asking

    def is_outdated(self, plan: CardPlan) -> bool:
        """Whether the pod finds cards, without victims, on a node that changed since the plan was begun."""
        changed = self._ledger.list_nodes_changed_since(plan.generation)
        if changed is None:
            return True
        names = frozenset(plan.names)
        return any(
            self._find_needed(plan.pod, name) == [] and not (name in plan.avoided and self._list_ending(name))
            for name in changed
            if name in names
        )

    def needs_victims(self, pod: Pod, name: str, *, leaving_uids: Collection[str]) -> bool:
        """Whether more than those pods must leave the node, and others of a lower priority are enough."""
        return bool(self._find_needed(pod, name, leaving_uids=leaving_uids))

    def _find_needed(self, pod: Pod, name: str, *, leaving_uids: Collection[str] = ()) -> list[Hold] | None:
        if pod.request is None:
            return None
        return self._victims.find_victims(
            name,
            pod,
            pod.request.card_request,
            leaving_uids=leaving_uids,
            protected_uids=self._list_protected(name),
        )

    async def _list_candidates(
        self, pod: Pod, request: CardRequest, names: Collection[str], avoided: Collection[str]
    ) -> list[_Candidate] | None:
        """A heap of the nodes where victims would free the cards; None if the pod fits one of them now."""
        found: list[_Candidate] = []
        for name in names:
            victims = self._victims.find_victims(name, pod, request, protected_uids=self._list_protected(name))
            if victims is not None:
                if not victims and not self._list_ending(name):
                    return None
                if name not in avoided:
                    found.append(_Candidate(name != pod.node_to_keep, get_victim_order(victims), name))
            await asyncio.sleep(0)  # a node with many pods takes milliseconds
        heapq.heapify(found)
        return found

    async def _choose_candidate(
        self, asking: ExaminedPod, pod: Pod, request: CardRequest, candidates: list[_Candidate]
    ) -> CardPlan | NoPlan:
        reasons: dict[str, str] = {}
        reads_left = MAX_CHECKED_NODES
        while candidates:
            best = heapq.heappop(candidates)
            if not (reads_left or best.is_read):
                break
            reads_left -= not best.is_read
            plan = await self._read_candidate(asking, pod, request, best.name)
            if isinstance(plan, NoPlan):
                reasons[best.name] = plan.reason
                continue
            order = get_victim_order([hold for hold in self._ledger.list_holds(best.name) if hold.pod in plan.victims])
            checked = _Candidate(best.is_elsewhere, order, best.name, is_read=True)
            if best.is_read or not candidates or checked[:3] <= candidates[0][:3]:
                return plan
            heapq.heappush(candidates, checked)
        return NoPlan("; ".join(f"{name}: {reason}" for name, reason in reasons.items()), tuple(reasons))

    async def _read_candidate(
        self, asking: ExaminedPod, pod: Pod, request: CardRequest, name: str
    ) -> CardPlan | NoPlan:
        try:
            state = await read_node_state(self._api, name)
        except ForeignAnswerError as error:
            return NoPlan(f"it cannot be read: {error}")
        if state is None:
            return NoPlan("the node is gone")
        listed = {each.metadata.uid: each for each in state.pods}
        protected = self._list_protected(name) | {uid for uid, each in listed.items() if is_protected(each)}
        victims = self._victims.find_victims(name, pod, request, protected_uids=protected)
        if victims is None:
            return NoPlan("the pods that would have to go are protected")
        uids = {hold.pod.uid for hold in victims}
        if not uids <= listed.keys():
            return NoPlan("its pods are changing")
        leaving = uids | {uid for uid, each in listed.items() if each.metadata.deletion_timestamp}
        staying = [each for uid, each in listed.items() if uid not in leaving and uid != pod.uid]
        if obstacle := find_node_obstacle(asking, state.node, staying):
            return NoPlan(obstacle)
        grace = max((_get_grace_seconds(listed[uid]) for uid in uids), default=0)
        return CardPlan(pod, name, tuple(hold.pod for hold in victims), grace)

    def _list_protected(self, name: str) -> set[str]:
        """Pods that have a place on the node and are not bound: only the scheduler can end their attempt."""
        return {place.pod.uid for place in self._ledger.places.list_on_node(name)}

    def _list_ending(self, name: str) -> Sequence[str]:
        return [hold.pod.uid for hold in self._ledger.list_holds(name) if hold.state == "terminating"]


def describe_unplannable(pod: ExaminedPod) -> str:
    """Why no pod is evicted for this one, wherever; empty if that may be."""
    if pod.spec.preemption_policy == "Never":
        return "its preemptionPolicy is Never"
    if pod.spec.depends_on_other_pods:
        return "it has required rules about other pods, and only the scheduler can say where they let it run"
    spec = pod.spec
    is_grouped = spec.scheduling_group != _NULL or spec.workload_ref != _NULL
    if is_grouped or GROUP_LABEL in (pod.metadata.labels or {}):
        return "it is in a group, and one card does not help a group"
    if spec.has_resource_claims:
        return "it has resource claims"
    return "Kueue manages it, and preempts for it" if _is_in_kueue(pod) else ""


def is_protected(pod: ExaminedPod) -> bool:
    """Whether the pod is never evicted for another one: nothing would be won, or the node would suffer."""
    owners = pod.metadata.owner_references or ()
    return (
        pod.is_static
        or any(owner.controller and owner.kind == "DaemonSet" for owner in owners)
        or (pod.spec.priority or 0) >= CRITICAL_PRIORITY
        or _is_in_kueue(pod)
    )


def _is_in_kueue(pod: ExaminedPod) -> bool:
    keys = (*(pod.metadata.labels or ()), *(pod.metadata.annotations or ()))
    return any(key.startswith(KUEUE_PREFIX) for key in keys)


def _get_grace_seconds(pod: ExaminedPod) -> float:
    seconds = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if seconds is None else seconds
