"""The ledger: which pod holds how many units of which card. A cache of the API server, never its rival.

What a pod holds on a node passes through these states:

                 forget (a definite refusal)
          .---------------------------------------.
          v                                       |
        free --assume--> reserved --(no answer)--> reserved, unsettled
                            |                         |
                            |   the API shows it bound (confirm)
                            v                         v
                          bound <---------------------'
                            |  deletionTimestamp
                            v
                         leaving: still holds
                            |  deleted, Succeeded, Failed (release)
                            v
                           gone

A reservation counts what was decided; from *bound* on only the record counts. A bound pod without a record that
can be read, or naming a card its node no longer has, counts on every card of the node until the node's agent
says where it is. Every method is one transaction: nothing here awaits, so there are no locks. The sums of a node
are made anew from its facts and its holders at every change, so a ledger rebuilt from a list equals the one that
saw the events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, KeysView
from dataclasses import dataclass, replace
from typing import Protocol

from extender.notices import Notice, notices
from vrampack.cards.allocation import Allocation
from vrampack.cards.holding import Hold, bound_hold, counted, index_of, reserved_hold, shown_order
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.room import has_gained_room

GONE_NODES_KEPT = 256
"""Names of removed nodes that are remembered beside as many as there are nodes: readers who ask often miss none."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place whose Binding was sent and is not yet seen on the watch."""

    pod: Pod
    node_name: str
    allocation: Allocation
    made_at: float
    """Seconds of the ledger's clock."""
    is_unsettled: bool = False
    """No answer came: the Binding may still land."""


class Listener(Protocol):
    """Who wants to hear at once what may let a waiting pod in. Called inside a transaction: it may only take note."""

    def room_grew(self) -> None:
        """Some node has room that it had not; `room_generation` has risen."""

    def pod_appeared(self, uid: str) -> None:
        """An unbound pod is known that was not."""


class Ledger:
    """Counts units per card for every node of the cluster."""

    def __init__(self, *, unit_mib: int, clock: Callable[[], float], report: Callable[[Notice], None]) -> None:
        self.unit_mib = unit_mib
        self.generation = 0
        """Rises with every change of any node."""
        self.room_generation = 0
        """Rises with every change by which a node gains room, and once when the policy lets all of them gain some."""
        self._room_at: dict[str, int] = {}
        """The room generation of each node, the latest last."""
        self._listener: Listener | None = None
        self._settled: Callable[[str], None] = _nobody_hears
        self._clock = clock
        self._report = report
        self._facts: dict[str, NodeFacts] = {}
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._bound: defaultdict[str, set[str]] = defaultdict(set)
        self._reservations: dict[tuple[str, str], Reservation] = {}
        self._reserved: defaultdict[str, set[str]] = defaultdict(set)
        """Pod uids with a reservation, by node."""
        self._nominated: defaultdict[str, set[str]] = defaultdict(set)
        """Uids of unbound pods by the node where others were evicted for them; no empty sets."""
        self._noticed: defaultdict[str, frozenset[tuple[str, str]]] = defaultdict(frozenset)
        self._changed: dict[str, int] = {}
        """The generation of each node's last change, in the order of these; gone nodes are in it for a while."""
        self._forgotten = 0
        """Changes up to this generation may be missing there."""
        self._fetched: set[str] = set()
        """Pods read one by one since the last list began: newer than what that list will say of them."""

    def listen(self, listener: Listener) -> None:
        """Tell `listener` from now on."""
        self._listener = listener

    def policy_changed(self) -> None:
        """Every node counts as roomier from here on: what is refused there may be let in, and no event tells of it."""
        self.room_generation += 1
        self._room_at = dict.fromkeys(self._nodes, self.room_generation)
        if self._listener is not None:
            self._listener.room_grew()

    def on_settled(self, settled: Callable[[str], None]) -> None:
        """Tell from now on of each pod, by uid, that is shown bound or leaving, or is gone: nobody places it any more."""
        self._settled = settled

    def roomier_since(self, generation: int) -> list[tuple[int, Node]]:
        """The nodes that gained room after this room generation, the latest first, each with its own."""
        found = []
        for name, gained_at in reversed(self._room_at.items()):
            if gained_at <= generation:
                break
            found.append((gained_at, self._nodes[name]))
        return found

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def nodes(self) -> list[Node]:
        """All nodes, those without cards too, by name."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def pod(self, uid: str) -> Pod | None:
        return self._pods.get(uid)

    def pods(self) -> Iterable[Pod]:
        return self._pods.values()

    def reservation(self, uid: str, node_name: str) -> Reservation | None:
        return self._reservations.get((uid, node_name))

    def reservations(self) -> list[Reservation]:
        return list(self._reservations.values())

    def age_seconds(self, reservation: Reservation) -> float:
        return self._clock() - reservation.made_at

    def changed_since(self, generation: int) -> list[str] | None:
        """The nodes that changed, came or went after that generation; None when that is forgotten: look at all."""
        if generation < self._forgotten:
            return None
        changed = []
        for name, at in reversed(self._changed.items()):
            if at <= generation:
                break
            changed.append(name)
        return changed

    def reserved_nodes(self, uid: str) -> list[str]:
        """Where the pod has a place reserved."""
        return [name for held, name in self._reservations if held == uid]

    def nominated_nodes(self) -> KeysView[str]:
        """Where some unbound pod waits for the room of evicted ones."""
        return self._nominated.keys()

    def nominees(self, name: str) -> list[Pod]:
        """The unbound pods for which others were evicted from this node, and that have no place there yet."""
        return [self._pods[uid] for uid in self._nominated.get(name, ()) if (uid, name) not in self._reservations]

    def node_when_left(self, name: str, also: Collection[str] = ()) -> Node | None:
        """The node as it will be when the pods that are leaving, and those of the uids in `also`, are gone."""
        facts = self._facts.get(name)
        if facts is None:
            return None
        holds = self._holds(facts)
        return self._count(facts, [hold for hold in holds if hold.state != "leaving" and hold.pod.uid not in also])

    def kept_no_longer(self, name: str) -> None:
        """What was kept there for a nominated pod is room for others again."""
        if name in self._nodes:
            self._gain_room(name)

    def node_for(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: a place that is reserved for it there is free for it.

        A pod whose bind got no answer may only have room where its own reservation is. Such a node is made for
        this pod alone. What a *bound* pod holds is never free, whoever names its uid.
        """
        if uid in self._reserved.get(name, ()):
            facts = self._facts.get(name)
            if facts is None:
                return None
            return self._count(facts, [hold for hold in self._holds(facts) if hold.pod.uid != uid])
        return self._nodes.get(name)

    def holds(self, node_name: str) -> list[Hold]:
        """Who holds what on a node, in the order of namespace and name."""
        facts = self._facts.get(node_name) or NodeFacts(node_name)
        return sorted(self._holds(facts), key=shown_order)

    def node_changed(self, facts: NodeFacts) -> None:
        if self._facts.get(facts.name) != facts:
            self._facts[facts.name] = facts
            self._refresh(facts.name)

    def node_gone(self, name: str) -> None:
        """Its pods are kept: they count again if the node comes back before they are gone."""
        if self._facts.pop(name, None) is not None:
            self._refresh(name)

    def pod_changed(self, pod: Pod) -> None:
        """The watch shows `pod`. Showing it bound confirms its reservation; its record counts from here on."""
        known = self._pods.get(pod.uid)
        if known is None or not pod.is_older_than(known):
            self._put(pod)

    def pod_fetched(self, pod: Pod) -> None:
        """The API server was asked for this one pod: newer than a list that is under way."""
        self._fetched.add(pod.uid)
        self.pod_changed(pod)

    def pod_gone(self, uid: str) -> None:
        """Release whatever the pod held anywhere."""
        pod = self._pods.pop(uid, None)
        touched = self._drop_reservations(uid)
        if pod is not None and pod.node_name:
            self._bound[pod.node_name].discard(uid)
            touched.add(pod.node_name)
        for name in touched:
            self._refresh(name)
        self._nominate(uid, before=_nomination(pod), now="")
        self._settled(uid)

    def list_begins(self) -> PodList:
        """Call before the first page of a list of all pods is asked for."""
        self._fetched.clear()
        return PodList(frozenset(self._pods), frozenset(self._reservations))

    def pod_listed(self, pod: Pod) -> None:
        """A list says more than the watch before it: it may take back even a binding (a restored backup)."""
        if pod.uid in self._fetched:
            self.pod_changed(pod)
        else:
            self._put(pod)

    def list_ends(self, before: PodList, listed: set[str]) -> None:
        """Release everything that was known before the list began and that it does not know: a uid never comes back.

        That one of them was fetched meanwhile says nothing: the answer may be older than the list's snapshot.
        """
        for uid in before.pods - listed:
            self.pod_gone(uid)
        for uid, node_name in before.reservations:
            if uid not in listed:
                self.forget(uid, node_name)

    def node_names(self) -> frozenset[str]:
        return frozenset(self._facts)

    def assume(self, pod: Pod, node_name: str, allocation: Allocation) -> Reservation:
        """Hold the place before its Binding is sent. The caller has just seen that it fits."""
        reservation = Reservation(pod, node_name, allocation, made_at=self._clock())
        self._reservations[pod.uid, node_name] = reservation
        self._reserved[node_name].add(pod.uid)
        self._refresh(node_name)
        return reservation

    def unsettle(self, uid: str, node_name: str) -> None:
        """No answer came to the Binding: keep the place until the API shows the pod, or shows it gone."""
        reservation = self._reservations.get((uid, node_name))
        if reservation is not None:
            self._reservations[uid, node_name] = replace(reservation, is_unsettled=True)

    def forget(self, uid: str, node_name: str) -> None:
        """The Binding was refused for certain: the place is free again."""
        if self._reservations.pop((uid, node_name), None) is not None:
            self._reserved[node_name].discard(uid)
            self._refresh(node_name)

    def drift_units(self, name: str) -> int:
        """Units by which the node's sums differ from a fresh count; always 0, or there is a bug."""
        facts, node = self._facts.get(name), self._nodes.get(name)
        if facts is None or node is None:
            return 0
        fresh = self._count(facts, self._holds(facts))
        if len(fresh.cards) != len(node.cards):
            return max(fresh.total_units, node.total_units)
        return sum(abs(a.used_units - b.used_units) for a, b in zip(fresh.cards, node.cards, strict=True))

    def _put(self, pod: Pod) -> None:
        if pod.is_finished or not pod.is_ours:
            self.pod_gone(pod.uid)
            return
        known = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        touched: set[str] = set()
        if known is not None and known.node_name and known.node_name != pod.node_name:
            self._bound[known.node_name].discard(pod.uid)
            touched.add(known.node_name)
        if known is None and not pod.node_name and self._listener is not None:
            self._listener.pod_appeared(pod.uid)
        if pod.node_name:
            self._bound[pod.node_name].add(pod.uid)
            touched |= self._drop_reservations(pod.uid)
            if known is None or (known.node_name, known.record, known.ask) != (pod.node_name, pod.record, pod.ask):
                touched.add(pod.node_name)
        for name in touched:
            self._refresh(name)
        self._nominate(pod.uid, before=_nomination(known), now=_nomination(pod))
        if pod.node_name or pod.is_leaving:
            self._settled(pod.uid)

    def _nominate(self, uid: str, *, before: str, now: str) -> None:
        """What was kept for the pod elsewhere is room for others again."""
        if before == now:
            return
        if before:
            self._nominated[before].discard(uid)
            if not self._nominated[before]:
                del self._nominated[before]
            self.kept_no_longer(before)
        if now:
            self._nominated[now].add(uid)

    def _drop_reservations(self, uid: str) -> set[str]:
        names = {name for held, name in self._reservations if held == uid}
        for name in names:
            del self._reservations[uid, name]
            self._reserved[name].discard(uid)
        return names

    def _refresh(self, name: str) -> None:
        """Count one node anew, after any change of it."""
        self.generation += 1
        self._changed.pop(name, None)  # and to the end
        self._changed[name] = self.generation
        facts = self._facts.get(name)
        if facts is None:
            self._nodes.pop(name, None)
            self._noticed.pop(name, None)
            self._room_at.pop(name, None)
            self._forget_gone_nodes()
            return
        holds = self._holds(facts)
        before = self._nodes.get(name)
        self._nodes[name] = node = self._count(facts, holds)
        self._notice(node, holds)
        if has_gained_room(before, node):
            self._gain_room(name)

    def _gain_room(self, name: str) -> None:
        self.room_generation += 1
        self._room_at.pop(name, None)
        self._room_at[name] = self.room_generation
        if self._listener is not None:
            self._listener.room_grew()

    def _forget_gone_nodes(self) -> None:
        """An autoscaler makes and removes nodes for ever: their names must not pile up."""
        if len(self._changed) > 2 * len(self._nodes) + GONE_NODES_KEPT:
            self._changed = {name: at for name, at in self._changed.items() if name in self._nodes}
            self._forgotten = self.generation

    def _count(self, facts: NodeFacts, holds: Iterable[Hold]) -> Node:
        return counted(facts, holds, unit_mib=self.unit_mib)

    def _holds(self, facts: NodeFacts) -> list[Hold]:
        indices = index_of(facts)
        reserved = (self._reservations[uid, facts.name] for uid in self._reserved.get(facts.name, ()))
        return [
            *(bound_hold(self._pods[uid], facts, indices) for uid in self._bound.get(facts.name, ())),
            *(
                reserved_hold(each.pod, each.allocation.shares(), facts, indices, is_unsettled=each.is_unsettled)
                for each in reserved
            ),
        ]

    def _notice(self, node: Node, holds: Iterable[Hold]) -> None:
        """Report what is wrong on the node and was not wrong at its last count."""
        found = {(notice.kind, notice.subject): notice for notice in notices(node, holds)}
        for key in found.keys() - self._noticed[node.name]:
            self._report(found[key])
        self._noticed[node.name] = frozenset(found)


@dataclass(frozen=True, slots=True)
class PodList:
    """What the ledger knew when a list of all pods began."""

    pods: frozenset[str]
    reservations: frozenset[tuple[str, str]]


def _nobody_hears(_uid: str) -> None:
    """Until somebody wants to."""


def _nomination(pod: Pod | None) -> str:
    """The node that the pod may still be bound to because others were evicted there."""
    return "" if pod is None or pod.node_name or pod.is_leaving or pod.ask is None else pod.nominated_node
