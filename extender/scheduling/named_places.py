"""The places that the scheduler was told of and has not bound yet: held for pods that it may bind late, softly reserved for others.

kube-scheduler binds most pods within milliseconds. One that waits for a volume, a resource claim or the other pods of its
group is bound minutes later, and until then the scheduler counts it on its node; so its place is held in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from cachetools import LRUCache, TTLCache

from extender.settings import ExtenderConfiguration
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.places import HeldPlace, HoldEnd
from extender.state.soft_reservations import SoftReservations
from extender.state.sync import ReadinessCheck
from policies.engine.engine import Engine
from policies.policy import ScoredCards
from policies.trial_placement import Placement
from vrampack.cards.allocation import allocate_cards
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey
from vrampack.cards.request import PodRequest

EXPIRY_INTERVAL_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""A scheduler's Lease lasts so long: after a longer silence another one may have led, and called another extender."""
RECENT_SECONDS = 5.0
"""A scheduler writes within less how an attempt has failed."""
MAX_RECENT = 10_000
IN_VAIN_SECONDS = 5.0
"""How long too few pods of a group of Kubernetes may have places: the scheduler tries all of them in one go, hundreds in a second."""
IN_VAIN_SECONDS_PER_MEMBER = 0.05
"""A call for one pod takes the scheduler some milliseconds, and more on a large cluster."""
ALTERNATIVE_SECONDS = 2.0
"""How long a pod of a group may have places on several sets of nodes after the last of them, and longer in a large group.

The scheduler goes from set to set without a pause, and chooses one at once when it has tried all; a pod that waits longer then is
nominated. A group that never starts is tried again and again, and must leave the other sets to others between its attempts.
"""
MAX_SCHEDULERS = 64
MAX_WHOLE_GROUPS = 1024
FAILING_SECONDS = 300.0
MAX_FAILING_GROUPS = 16
"""All pods of each are looked at in every call of filter."""


class Attempt(NamedTuple):
    """A call of filter for a pod that may be bound late."""

    pod: Pod
    """As the scheduler had it."""
    may_hear_of_earlier: bool


class NamedPlaces:
    """At most one for each pod, but one on each set of nodes on which the scheduler tries its group before it chooses a set."""

    def __init__(
        self,
        ledger: Ledger,
        soft_reservations: SoftReservations,
        settings: ExtenderConfiguration,
        readiness: ReadinessCheck,
        group_fit: GroupFit,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._soft_reservations = soft_reservations
        self._readiness = readiness
        self._group_fit = group_fit
        self._clock = clock
        self._schedulers = frozenset(settings.holds.schedulers)
        self._max_seconds = settings.holds.max_seconds
        self._stale_seconds = settings.deadlines.stale_seconds
        self._expired_at: LRUCache[str, float] = LRUCache(MAX_RECENT)
        """By uid, when the pod's hold had lasted too long: no nomination that was there before renews it."""
        self._called_at = -inf
        """When filter was called last, for any pod."""
        self._attempts: TTLCache[str, Attempt] = TTLCache(MAX_RECENT, RECENT_SECONDS, timer=clock)
        """The last one of each pod."""
        self._groups_tried: LRUCache[str, GroupKey] = LRUCache(MAX_SCHEDULERS)
        """By scheduler name, the group of the pod that it asked about last."""
        self._in_vain_since: dict[GroupKey, float] = {}
        self._failing_groups: TTLCache[GroupKey, None] = TTLCache(MAX_FAILING_GROUPS, FAILING_SECONDS, timer=clock)
        """Groups that were in vain for so long that a call for any other pod ends their attempt, whatever its scheduler."""
        self._whole_groups: LRUCache[GroupKey, None] = LRUCache(MAX_WHOLE_GROUPS)
        """Their attempt has found enough places. If a bind fails then, the other pods go on, and may wait for volumes."""

    async def run(self) -> None:
        """End the holds that have lasted too long, once a second, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_SECONDS)
            self.end_old_holds()

    def end_old_holds(self) -> None:
        """Also those of groups that fail for longer, and of pods that a fresh ledger would know by then if they existed."""
        self._end_groups_in_vain()
        is_fresh = not self._readiness.find_unready_reason()
        self._end_old_alternatives()
        for held in self._ledger.places.list_held_places():
            age, uid = self._ledger.get_age_seconds(held), held.pod.uid
            if age >= self._max_seconds:
                self._expired_at[uid] = self._clock()
                self._ledger.release_held_places(uid, "expired")
            elif is_fresh and age >= self._stale_seconds and self._ledger.get_pod(uid) is None:
                self._ledger.release_held_places(uid, "gone")

    def restore_holds(self, engine: Engine, *, seen_since: float = -inf, but_uid: str = "") -> None:
        """Hold the places of pods that a scheduler has nominated, as it does from 1.35 on while it waits, and that have none here.

        Only where the nomination was first seen since then, and not for the pod `but_uid`.
        """
        groups = set()
        for pod in self._ledger.list_unbound_pods():
            if (
                pod.nominated_node
                and pod.uid != but_uid
                and self._may_restore(pod, seen_since)
                and pod.request is not None
            ):
                scored = engine.evaluate_node(pod.nominated_node, pod.request, pod.uid)
                if isinstance(scored, ScoredCards):
                    self._name_place(pod, pod.request, pod.nominated_node, scored)
                    groups.add(pod.group)
        for group in groups:
            self._note_whole_group(group)

    def begin_attempt(self, pod: Pod, names: Sequence[str], engine: Engine) -> None:
        """Filter is called for the pod: the places of its earlier attempts are given up, and those of a group before it that failed.

        On other sets of nodes than that of `names` it may have places of the same attempt, which it keeps.
        """
        self._restore_after_silence(engine, pod)
        self._end_group_before(pod)
        held, others = self._ledger.places.list_held_places_of(pod.uid), self._list_alternatives(pod, names)
        if self._may_bind_late(pod):
            given_up = [place for place in held if place not in others]
            self._attempts[pod.uid] = Attempt(pod, self._may_hear_of_earlier(pod, given_up, others))
        self._soft_reservations.release_pod(pod.uid)
        self._ledger.release_held_places(pod.uid, "filtered", beside=[place.node_name for place in others])
        if pod.group is not None:
            self._whole_groups.pop(pod.group, None)
        self._note_whole_group(pod.group)

    def name_place(self, pod: Pod, pod_request: PodRequest, node_name: str, scored: ScoredCards) -> None:
        """The scheduler is about to be told of this place."""
        self._name_place(pod, pod_request, node_name, scored)
        self._note_whole_group(pod.group)

    def _name_place(self, pod: Pod, pod_request: PodRequest, node_name: str, scored: ScoredCards) -> None:
        node = self._ledger.get_node_for_pod(node_name, pod.uid)
        if node is None or self._ledger.places.get_reservation_on(pod.uid, node_name) is not None:
            return  # it counts already
        if self._may_bind_late(pod):
            self._soft_reservations.release_pod(pod.uid)
            allocation, attempt = allocate_cards(node, scored.cards, pod_request), self._attempts.get(pod.uid)
            may_hear_of_earlier = attempt is not None and attempt.may_hear_of_earlier
            self._ledger.hold_place(
                pod,
                node_name,
                allocation,
                scored.score,
                may_hear_of_earlier=may_hear_of_earlier,
                beside=[place.node_name for place in self._list_alternatives(pod, [node_name])],
            )
            return
        indices = tuple(sorted(card.index for card in scored.cards))
        placement = Placement(node_name, indices, scored.score)
        self._soft_reservations.reserve_placement(pod.uid, pod_request.card_request, placement)

    def release_pod(self, uid: str, how: HoldEnd) -> None:
        """The pod is bound, or the scheduler's attempt has ended."""
        self._soft_reservations.release_pod(uid)
        self._ledger.release_held_places(uid, how)

    def on_pod_reserved(self, pod: Pod, node_name: str) -> None:
        """Its bind has come, so its scheduler has chosen a set of nodes for its group: places on other sets are of no use."""
        self.release_pod(pod.uid, "bound")
        chosen = "" if pod.group is None else self._group_fit.get_node_set(pod.group, node_name)
        if pod.group is None or not chosen:
            return
        for uid in [member.uid for member in self._ledger.list_group(pod.group)]:
            held = [place.node_name for place in self._ledger.places.list_held_places_of(uid)]
            kept = [name for name in held if self._group_fit.get_node_set(pod.group, name) == chosen]
            self._ledger.release_held_places(uid, "bound", beside=kept)

    def end_attempt(self, uid: str, began_at: float) -> None:
        """A bind that began then has ended. A place that was named since is of a later attempt."""
        self._soft_reservations.release_pod(uid)
        held = self._ledger.places.list_held_places_of(uid)
        later = [place.node_name for place in held if place.made_at > began_at]
        self._ledger.release_held_places(uid, "failed", beside=later)

    def _restore_after_silence(self, engine: Engine, pod: Pod) -> None:
        """A nomination from before another scheduler can have led is of an attempt here, which has failed: by preemption."""
        now = self._clock()
        if now - self._called_at >= SILENT_SECONDS:
            self.restore_holds(engine, seen_since=self._called_at + SILENT_SECONDS, but_uid=pod.uid)
        self._called_at = now

    def _may_restore(self, pod: Pod, seen_since: float) -> bool:
        seen_at = self._ledger.nominations.get_seen_at(pod.uid)
        if seen_at is None or seen_at < max(seen_since, self._expired_at.get(pod.uid, -inf)):
            return False
        return self._may_bind_late(pod) and not pod.is_gated and not self._ledger.places.list_places_of(pod.uid)

    def _end_group_before(self, pod: Pod) -> None:
        """The scheduler tries the pods of a group in one go: a pod of no group, or of another, shows that this has ended.

        One scheduler may have several names, its profiles. So a group that fails for long keeps nothing from the others either.
        """
        before = self._groups_tried.pop(pod.scheduler_name, None)
        if before is not None and before != pod.group:
            self._release_places_in_vain(before)
        for group in list(self._failing_groups):
            if group != pod.group:
                self._release_places_in_vain(group)
        if pod.group is not None and pod.group.kind == "podgroups.scheduling.k8s.io":
            self._groups_tried[pod.scheduler_name] = pod.group

    def _end_groups_in_vain(self) -> None:
        """Whether the scheduler is trying a group cannot be seen, but for so long it does not."""
        now = self._clock()
        held = {place.pod.group for place in self._ledger.places.list_held_places()}
        own = [group for group in held if group is not None and group.kind == "podgroups.scheduling.k8s.io"]
        in_vain = [group for group in own if self._group_fit.list_in_vain(group)]
        self._in_vain_since = {group: self._in_vain_since.get(group, now) for group in in_vain}
        for group, since in self._in_vain_since.items():
            members = len(self._ledger.list_group(group))
            if now - since >= IN_VAIN_SECONDS + members * IN_VAIN_SECONDS_PER_MEMBER:
                self._release_places_in_vain(group)
                self._failing_groups[group] = None

    def _note_whole_group(self, group: GroupKey | None) -> None:
        if group is not None and self._group_fit.has_enough_places(group):
            self._whole_groups[group] = None
            self._failing_groups.pop(group, None)

    def _release_places_in_vain(self, group: GroupKey) -> None:
        if group in self._whole_groups:
            return
        for uid in self._group_fit.list_in_vain(group):
            self._ledger.release_held_places(uid, "failed")

    def _list_alternatives(self, pod: Pod, names: Sequence[str]) -> list[HeldPlace]:
        """The pod's places on other sets of nodes than that of these: its scheduler may still choose one."""
        held = self._ledger.places.list_held_places_of(pod.uid)
        if pod.group is None or not held:
            return []
        group, tried = pod.group, self._group_fit.find_common_node_set(pod.group, names)
        return [place for place in held if tried and self._group_fit.get_node_set(group, place.node_name) != tried]

    def _may_hear_of_earlier(self, pod: Pod, given_up: Sequence[HeldPlace], others: Sequence[HeldPlace]) -> bool:
        if given_up:
            return not any(place.is_given_up_by(pod) for place in given_up)
        if others:
            return others[-1].may_hear_of_earlier
        recent = self._attempts.get(pod.uid)
        return recent is not None and recent.pod.failed_attempt == pod.failed_attempt

    def _end_old_alternatives(self) -> None:
        """Of each pod all places but the one to which it is nominated, or else the latest."""
        members: dict[GroupKey | None, int] = {}
        for held in self._ledger.places.list_alternatives():
            group, last = held[-1].pod.group, min(map(self._ledger.get_age_seconds, held))
            if group not in members:
                members[group] = 0 if group is None else len(self._ledger.list_group(group))
            if last >= ALTERNATIVE_SECONDS + members[group] * IN_VAIN_SECONDS_PER_MEMBER:
                chosen = next((place for place in held if place.is_confirmed), held[-1])
                self._ledger.release_held_places(chosen.pod.uid, "expired", beside=[chosen.node_name])

    def _may_bind_late(self, pod: Pod) -> bool:
        return pod.may_bind_late or pod.scheduler_name in self._schedulers
