"""The ledger: which pod holds how many units of which card. A cache of what the API server knows.

What a pod holds on a node passes through these states:

          forget (a definite refusal)
          .---------------.
          v               |
        free --assume--> reserved --(no answer)--> reserved, unconfirmed
                            |                         |    '--the pod is seen unbound, at a later version--> free
                            |   update_pod shows it bound
                            v                         v
                          bound <---------------------'
                            |  deletionTimestamp
                            v
                         terminating: still holds
                            |  remove_pod (deleted), or update_pod (Succeeded, Failed)
                            v
                           gone

A reservation counts what was decided; from *bound* on only the record counts. A bound pod whose record is missing,
cannot be read, or names a card that its node no longer has counts on every card of the node until the node's agent
reports where it is. Every method is one transaction: nothing here awaits, so there are no locks. The sums of a node
are recomputed from its facts and its holders at every change, so a ledger rebuilt from a list equals the one that
saw the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cachetools import TTLCache

from extender.state.known_nodes import KnownNodes
from extender.state.known_pods import KnownPods, SettledPod, list_touched_nodes
from extender.state.ledger_changes import LedgerChanges
from extender.state.ledger_listener import LedgerListener
from extender.state.ledger_rules import LedgerRules
from extender.state.namespaces import PlacementInForce
from extender.state.nominations import Nominations, get_nomination, has_equal_claim
from extender.state.places import HeldPlace, HoldEnd, Place, Places, Reservation
from extender.state.relist_baseline import RelistBaseline
from vrampack.cards.allocation import Allocation
from vrampack.cards.holding import Hold
from vrampack.cards.node import Node, NodeFacts
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey
from vrampack.cards.profiles import NO_SETTINGS, PlacementSettings
from vrampack.cards.resource_version import is_later_version

REMOVED_SECONDS = 30.0
"""How long removed pods are remembered. The scheduler tries a group of pods in one go, at most some seconds."""
MAX_REMOVED = 10_000


class Ledger:
    """Counts units per card for every node of the cluster."""

    def __init__(
        self, *, unit_mib: int, clock: Callable[[], float], placement: PlacementSettings = NO_SETTINGS
    ) -> None:
        self.unit_mib = unit_mib
        self.in_force = PlacementInForce(placement)
        """`apply_placement` of extender/state/placement_change.py changes it."""
        self.label_keys = placement.list_label_keys()
        """Labels that are read with every pod; settings that name others need another ledger."""
        self._clock = clock
        self._pods = KnownPods()
        self.places = Places()
        """Of pods that are not bound. Only the ledger changes them."""
        self.nominations = Nominations(clock)
        """The nodes to which unbound pods are nominated."""
        self._changes = LedgerChanges()
        rules = LedgerRules(placement.rules, unit_mib=unit_mib)
        self.nodes = KnownNodes(rules, self._pods, self.places, self._changes)
        """Only the ledger changes them."""
        self._removed: TTLCache[str, None] = TTLCache(MAX_REMOVED, REMOVED_SECONDS, timer=clock)
        """Pods for which a scheduler may still ask: it hears of the end of a pod later than we, or has begun with it."""
        self._fetched: set[str] = set()
        """Known pods that were fetched one by one since the last list began: newer than that list."""

    @property
    def placement(self) -> PlacementSettings:
        return self.in_force.settings

    @property
    def generation(self) -> int:
        """Rises with every change to any node."""
        return self._changes.nodes.generation

    @property
    def capacity_generation(self) -> int:
        """Rises with every change by which a node gains room, and with every change of the policy."""
        return self._changes.capacity_generation

    @property
    def cards_generation(self) -> int:
        """Rises when a node comes or goes, or has other cards: why a pod can never fit there may have changed."""
        return self._changes.cards_generation

    def add_listener(self, listener: LedgerListener) -> None:
        """Tell `listener` of changes from now on."""
        self._changes.add_listener(listener)

    def apply_policy_change(self) -> None:
        """Every node counts as having gained room: the new policy may accept pods that the old one rejected."""
        self.nodes.record_capacity_gains()

    def exchange_placement(
        self,
        in_force: PlacementInForce,
        settled_pods: Mapping[str, SettledPod],
        rules: LedgerRules | None = None,
        nodes: dict[str, Node] | None = None,
    ) -> None:
        """Put settings, and nodes built under `rules`, into force in one step. Only `apply_placement` calls this.

        `settled_pods` are the waiting pods, by uid, that these settings were applied to already.
        """
        self.in_force = in_force
        settled = self._pods.settle_unbound(in_force, settled_pods)
        if rules is not None and nodes is not None:
            self.nodes.exchange_nodes(rules, nodes)
        self._mark_changed_claims(settled)

    def update_namespace(self, name: str) -> None:
        """The namespace has other labels: other rules may apply to its waiting pods, which may fit where they did not."""
        self._mark_changed_claims(self._pods.settle_namespace(name, self.in_force))
        self.nodes.record_capacity_gains()

    def get_node(self, name: str) -> Node | None:
        return self.nodes.get_node(name)

    def list_nodes(self) -> list[Node]:
        """All nodes by name, including those without cards."""
        return self.nodes.list_nodes()

    def get_pod(self, uid: str) -> Pod | None:
        return self._pods.get_pod(uid)

    def list_pods(self) -> Iterable[Pod]:
        return self._pods.list_pods()

    def list_group(self, group: GroupKey) -> list[Pod]:
        """The pods of a group that ask for memory, bound and unbound."""
        return self._pods.list_in_group(group)

    def count_companions(self, group: GroupKey) -> int:
        """How many other pods of the group have not finished: they need no cards."""
        return self._pods.count_companions(group)

    def list_unbound_pods(self) -> list[Pod]:
        return self._pods.list_unbound()

    def get_age_seconds(self, place: Place) -> float:
        return self._clock() - place.made_at

    def list_nodes_changed_since(self, generation: int) -> list[str] | None:
        """The nodes that changed, came or went after that generation; None when it is too old to tell: assume all."""
        return self._changes.nodes.list_nodes_changed_since(generation)

    def list_nominees(self, name: str) -> list[Pod]:
        """The unbound pods that are nominated to this node and need cards there."""
        nominees = self.nominations.list_on_node(name)
        return self._pods.select_pods(uid for uid in nominees if not self.places.needs_no_cards_of(uid, name))

    def mark_node_changed(self, name: str) -> None:
        """Record a change that the node itself does not show: its pods are terminating, or other cards are kept on it."""
        if name in self.nodes:
            self._changes.record_node_change(name)

    def build_node_after_terminations(self, name: str, victim_uids: Collection[str] = ()) -> Node | None:
        """The node as it will be when the terminating pods, and those of `victim_uids`, are gone."""
        return self.nodes.build_after_terminations(name, victim_uids)

    def release_nominated_capacity(self, name: str) -> None:
        """Give the cards that were kept on the node for a nominated pod back to other pods."""
        if name in self.nodes:
            self._changes.record_capacity_gain(name)

    def get_node_for_pod(self, name: str, uid: str) -> Node | None:
        """The node as the pod `uid` finds it: its own place there counts as free.

        A pod whose bind got no answer may fit only where its own reservation is. What a *bound* pod holds is never free,
        not even in a call that names its uid.
        """
        return self.nodes.build_for_pod(name, uid)

    def get_node_for_group(self, name: str, uids: Collection[str], priority: int) -> Node | None:
        """The node as these pods may find it together: what is held for them is free, and pods of lower priority are evicted."""
        return self.nodes.build_for_group(name, uids, priority)

    def list_holds(self, node_name: str) -> list[Hold]:
        """What each pod holds on a node, in the order of namespace and name."""
        return self.nodes.list_holds(node_name)

    def update_node(self, facts: NodeFacts) -> None:
        self.nodes.put_facts(facts)

    def remove_node(self, name: str) -> None:
        """Remove the node. Its pods stay known, and count again if the node comes back before they are gone."""
        self.nodes.remove_node(name)

    def update_pod(self, pod: Pod) -> None:
        """The watch shows `pod`. Showing it bound confirms its reservation; its record counts from here on."""
        known = self._pods.get_pod(pod.uid)
        if known is None or not pod.is_older_than(known):
            self._put_pod(pod)

    def update_fetched_pod(self, pod: Pod) -> None:
        """The pod was fetched by itself: it is newer than a list that is under way."""
        self._fetched.add(pod.uid)
        self.update_pod(pod)

    def remove_pod(self, uid: str) -> None:
        """Release all that the pod holds."""
        pod = self._pods.remove_pod(uid)
        if pod is not None:
            self._removed[uid] = None
        self._fetched.discard(uid)
        for name in list_touched_nodes(pod, None) | self._end_places(self.places.list_places_of(uid), "gone"):
            self.nodes.rebuild_node(name)
        self._update_nomination(pod, None)
        self._changes.tell_pod_resolved(uid)

    def begin_list(self) -> RelistBaseline:
        """Call before requesting the first page of a list of all pods."""
        self._fetched.clear()
        return RelistBaseline(self._pods.list_uids(), frozenset(each.pod.uid for each in self.places))

    def update_listed_pod(self, pod: Pod) -> None:
        """A list overrides the watch before it: it may even take back a binding (a restored backup)."""
        if pod.uid in self._fetched:
            self.update_pod(pod)
        else:
            self._put_pod(pod)

    def end_list(self, baseline: RelistBaseline, listed: set[str]) -> None:
        """Release every pod that was known before the list began and is not in it: a uid never comes back.

        A pod that was fetched meanwhile is no exception: the answer may be older than the list's snapshot.
        """
        for uid in baseline.pods - listed:
            self.remove_pod(uid)
        for uid in baseline.placed_pods - listed:
            self._release_places(self.places.list_places_of(uid), "gone")

    def list_node_names(self) -> frozenset[str]:
        return self.nodes.list_names()

    def assume(self, pod: Pod, node_name: str, allocation: Allocation) -> Reservation:
        """Hold the place before its Binding is sent. The caller has just seen that it fits.

        Raises `ValueError` if the pod has a place on another node: that one is fenced first.
        """
        known = self.places.get_reservation(pod.uid)
        if known is not None and known.node_name != node_name:
            raise ValueError(f"pod {pod} has a place on node {known.node_name} already")
        touched = {node_name} | self._end_places(self.places.list_places_of(pod.uid), "bound")
        reservation = Reservation(pod, node_name, allocation, made_at=self._clock())
        self.places.put_place(reservation)
        for name in touched:
            self.nodes.rebuild_node(name)
        return reservation

    def hold_place(
        self,
        pod: Pod,
        node_name: str,
        allocation: Allocation,
        score: float,
        *,
        may_hear_of_earlier: bool = False,
        beside: Collection[str] = (),
    ) -> None:
        """Count the place for a pod that may be bound late, unless it is bound or gone, or a Binding of it is under way.

        It is the only one of its pod, but for those on nodes of `beside`.
        """
        known = self._pods.get_pod(pod.uid)
        if known is not None and is_later_version(known.resource_version, than=pod.resource_version):
            pod = known
        if pod.node_name or pod.is_terminating or self.places.get_reservation(pod.uid) is not None:
            return
        if known is None and pod.uid in self._removed:
            return
        self.release_held_places(pod.uid, "filtered", beside=beside)
        self.places.put_place(
            HeldPlace(
                pod,
                node_name,
                allocation,
                score,
                made_at=self._clock(),
                is_confirmed=pod.nominated_node == node_name,
                may_hear_of_earlier=may_hear_of_earlier,
            )
        )
        self.nodes.rebuild_node(node_name)
        nominated_node = get_nomination(known)
        if nominated_node != node_name:
            self.mark_node_changed(nominated_node)
            self.release_nominated_capacity(nominated_node)

    def release_held_places(self, uid: str, how: HoldEnd, *, beside: Collection[str] = ()) -> None:
        """Free what is held for the pod, but not on nodes of `beside`."""
        held = self.places.list_held_places_of(uid)
        self._release_places([place for place in held if place.node_name not in beside], how)

    def record_binding(self, uid: str, node_name: str, version: str) -> None:
        """A Binding for this version of the pod is about to be sent.

        An unanswered one for an earlier version can no longer land; one for the same version still may.
        """
        self._change_reservation(uid, node_name, lambda known: known.send_binding(version))

    def mark_unconfirmed(self, uid: str, node_name: str) -> None:
        """No answer came to the Binding: keep the place until it is fenced, or the API shows the pod bound or gone."""
        self._change_reservation(uid, node_name, Reservation.lose_answer)

    def mark_written(self, uid: str, node_name: str) -> None:
        """The Binding was written: the place is the pod's until the API server shows the pod itself elsewhere or gone."""
        self._change_reservation(uid, node_name, Reservation.note_written)

    def forget(self, uid: str, node_name: str) -> None:
        """Free the place after a definite refusal, which says nothing about a Binding that was written before."""
        known = self.places.get_reservation_on(uid, node_name)
        if known is not None and not known.is_written:
            self._release_places([known], "failed")

    def release_place(self, uid: str, node_name: str) -> None:
        """Free the place: the API server has shown since that the pod is not there and that no Binding can bring it there."""
        known = self.places.get_reservation_on(uid, node_name)
        if known is not None:
            self._release_places([known], "failed")

    def _put_pod(self, pod: Pod) -> None:
        if pod.is_finished or not pod.can_hold_memory:
            self.remove_pod(pod.uid)
            if pod.group is not None and not pod.is_finished:
                self._pods.put_companion(pod.uid, pod.group)
                self._changes.tell_group_changed(pod.group)
            return
        pod = self.in_force.resolve_pod(pod)
        known = self._pods.put_pod(pod)
        touched = list_touched_nodes(known, pod)
        if known is not None and known.is_terminating != pod.is_terminating and pod.node_name not in touched:
            self.mark_node_changed(pod.node_name)
        if known is None and not pod.node_name:
            self._changes.tell_pod_added(pod.uid)
        if pod.group is not None and (
            known is None or (known.node_name, known.request) != (pod.node_name, pod.request)
        ):
            self._changes.tell_group_changed(pod.group)
        freed = self.places.list_places_of(pod.uid) if pod.node_name else self.places.hear_of(pod)
        touched |= self._end_places(freed, "bound" if pod.node_name else "failed")
        for name in touched:
            self.nodes.rebuild_node(name)
        self._update_nomination(known, pod)
        if pod.node_name or pod.is_terminating:
            self._changes.tell_pod_resolved(pod.uid)

    def _update_nomination(self, known: Pod | None, pod: Pod | None) -> None:
        """Follow a changed nomination: the cards kept on the former node are room for others again."""
        before, now = get_nomination(known), get_nomination(pod)
        if before == now and (not now or has_equal_claim(known, pod)):
            return
        self.nominations.replace_pod(known, pod)
        for name in dict.fromkeys((before, now)):
            self.mark_node_changed(name)
        if before != now:
            self.release_nominated_capacity(before)

    def _mark_changed_claims(self, settled: Iterable[SettledPod]) -> None:
        """Record a change of the nodes on which other cards may be kept: rules let a nominee use others than before."""
        for pod in settled:
            if (name := get_nomination(pod.after)) and not has_equal_claim(pod.before, pod.after):
                self.mark_node_changed(name)

    def _change_reservation(self, uid: str, node_name: str, change: Callable[[Reservation], Reservation]) -> None:
        """Replace the pod's reservation, if it is on this node."""
        known = self.places.get_reservation_on(uid, node_name)
        if known is not None:
            changed = change(known)
            self.places.put_place(changed)
            if changed.state != known.state:
                self.nodes.rebuild_node(node_name)  # the scheduler counts the pod there again, or no longer

    def _release_places(self, places: Sequence[Place], how: HoldEnd) -> None:
        for name in sorted(self._end_places(places, how)):
            self.nodes.rebuild_node(name)

    def _end_places(self, places: Sequence[Place], how: HoldEnd) -> set[str]:
        """Remove these places. Returns the nodes to rebuild."""
        for place in places:
            self.places.end_place(place, how)
            if isinstance(place, HeldPlace):
                self.mark_node_changed(
                    get_nomination(self._pods.get_pod(place.pod.uid))
                )  # cards may be kept there again
        return {place.node_name for place in places}
