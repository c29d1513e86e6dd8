"""Groups and other pods compete on drawn clusters, as Kubernetes' scheduler tries them: on all nodes at once, or rack by rack.

A group is refused only if no choice of cards fits enough of its pods; a pod of a chosen set of nodes is bound there, whatever came
in between; and no place outlives its use. `VRAMPACK_GROUP_WORLDS=2000` draws more.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec

from extender.scheduling.named_places import ALTERNATIVE_SECONDS
from extender.state.ledger_drift import count_drift_units
from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey
from vrampack.cards.records import Record
from vrampack.kube.objects import NodeObject

WORLDS = int(os.environ.get("VRAMPACK_GROUP_WORLDS", "40"))
STEPS = 30
RACK = "example.com/rack"
CARD_UNITS = 16
SIZES = (5, 9, 12)
MOST_GROUPS = 3
REFUSED = "its group does not fit"


@dataclass(slots=True)
class DrawnGroup:
    """Pods that start together."""

    key: GroupKey
    minimum: int
    is_by_rack: bool
    waiting: dict[str, int]
    """Units by pod."""
    bound: list[str] = field(default_factory=list)

    @property
    def needed(self) -> int:
        return self.minimum - len(self.bound)

    @property
    def spec(self) -> dict[str, Any]:
        return {"schedulingGroup": {"podGroupName": self.key.name}}


class GroupWorld:
    """One cluster, its extender, and a scheduler that does what a seed draws."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.racks = [
            [f"{rack}{node}" for node in range(random.randint(1, 2))] for rack in "abc"[: random.randint(1, 3)]
        ]
        self.names = [name for names in self.racks for name in names]
        self.desk = SchedulerHarness({name: [CARD_UNITS] * random.randint(1, 2) for name in self.names})
        for name in self.names:
            node = {"metadata": {"name": name, "labels": {RACK: name[0]}}}
            self.desk.node_labels.update_node(msgspec.convert(node, NodeObject))
        self.groups: list[DrawnGroup] = []
        self.bound: dict[str, Counter[tuple[str, int | None]]] = {}
        """Units by node and card, by pod."""
        self.seen: Counter[str] = Counter()
        self._made = 0

    async def take_step(self) -> None:
        steps = (self.add_group, self.try_group, self.try_group, self.run_stranger, self.end_pod, self.wait)
        await self.random.choice(steps)()
        self.check_cards()

    async def add_group(self) -> None:
        random = self.random
        if len(self.groups) == MOST_GROUPS:
            return
        name, sizes = self._make_name("g"), random.choices(SIZES, k=2)
        waiting = {f"{name}-{number}": random.choice(sizes) for number in range(random.randint(2, 4))}
        key = GroupKey("podgroups.scheduling.k8s.io", "default", name)
        group = DrawnGroup(key, random.randint(2, len(waiting)), random.random() < 0.7, waiting)
        self.groups.append(group)
        self.desk.parts.groups.put_topology_key(key, RACK if group.is_by_rack else "")
        self.desk.parts.groups.put_minimum(key, group.minimum)
        for uid in waiting:
            self.desk.ledger.update_pod(self._build_member(group, uid))

    async def try_group(self) -> None:
        """Each set of nodes is tried, then one is chosen, and other pods come before its binds."""
        waiting = [group for group in self.groups if group.waiting]
        if not waiting:
            return
        group = self.random.choice(waiting)
        chosen = self._choose_nodes(group)
        if chosen is None:
            return
        for _ in range(self.random.randint(0, 3)):
            others = [each for each in waiting if each is not group]
            if others and self.random.random() < 0.4:
                self._choose_nodes(self.random.choice(others))
            else:
                await self.run_stranger()
        for uid in self.random.sample(sorted(chosen), len(chosen)):
            assert await self.desk.bind(uid, chosen[uid], group.spec) == ""
            self._note_bound(self._build_member(group, uid))
            group.bound.append(uid)
            del group.waiting[uid]
        self.seen["whole"] += 1
        racks = {place.node_name[0] for uid in group.waiting for place in self._list_held(uid)}
        assert not group.is_by_rack or racks <= {name[0] for name in chosen.values()}

    async def run_stranger(self) -> None:
        """A pod of no group that is bound at once, or fits nowhere."""
        uid, units = self._make_name("s"), self.random.choice(SIZES)
        pod = ledger_pod(uid, units=units, version="1")
        self.desk.ledger.update_pod(pod)
        passed = self.desk.filter_names(uid, units)
        if passed:
            assert await self.desk.bind(uid, self.random.choice(passed)) == ""
            self._note_bound(pod)
        else:
            self.desk.ledger.remove_pod(uid)

    async def end_pod(self) -> None:
        """A pod that runs, or a whole group."""
        if self.groups and self.random.random() < 0.3:
            group = self.groups.pop(self.random.randrange(len(self.groups)))
            for uid in (*group.waiting, *group.bound):
                self._remove(uid)
            assert not any(place.pod.group == group.key for place in self.desk.ledger.places.list_held_places())
        elif strangers := [uid for uid in self.bound if uid.startswith("s")]:
            self._remove(self.random.choice(strangers))

    async def wait(self) -> None:
        self.desk.seconds += self.random.choice((0.1, 3, 8, ALTERNATIVE_SECONDS))
        self.desk.parts.places.end_old_holds()

    def check_cards(self) -> None:
        """Of every card, what is held is what the places and the bound pods say, and never more than it has."""
        for node in self.desk.ledger.list_nodes():
            assert count_drift_units(self.desk.ledger, node.name) == 0
            assert all(card.used_units <= card.units for card in node.cards)

    def check_end(self) -> None:
        """An attempt leaves no more than one place for a pod, and a pod that is gone none."""
        self.desk.seconds += ALTERNATIVE_SECONDS + 1
        self.desk.parts.places.end_old_holds()
        held = [place.pod.uid for place in self.desk.ledger.places]
        assert len(held) == len(set(held))
        for group in self.groups:
            for uid in group.waiting:
                self._remove(uid)
        assert not list(self.desk.ledger.places)

    def _choose_nodes(self, group: DrawnGroup) -> dict[str, str] | None:
        """The nodes of its pods on one set; None where the attempt fails, now and then for reasons that nobody sees."""
        node_sets = self.random.sample(self.racks, len(self.racks)) if group.is_by_rack else [self.names]
        if group.is_by_rack and group.bound:
            (node_name, _), *_ = self.bound[group.bound[0]]
            node_sets = [names for names in self.racks if node_name in names]
        tried = [self._try_on(group, names) for names in node_sets]
        whole = [assigned for assigned in tried if assigned and len(assigned) >= group.needed]
        return self.random.choice(whole) if whole and self.random.random() < 0.9 else None

    def _try_on(self, group: DrawnGroup, names: Sequence[str]) -> dict[str, str]:
        """The nodes of those of its pods that fit."""
        assigned: dict[str, str] = {}
        for uid, units in group.waiting.items():
            call = (uid, units, names, group.spec, {"resourceVersion": "1"})
            answer = json.loads(self.desk.parts.verbs.filter(self.desk.encode_call(*call)).body)
            if REFUSED in (answer["FailedNodes"] or {}).values():
                self.seen["refused"] += 1
                assert not self._fits_jointly(group), f"{group} is refused"
            passed = answer["NodeNames"]
            if len(passed) > 1:
                call = (uid, units, passed, group.spec, {"resourceVersion": "1"})
                scores = json.loads(self.desk.parts.verbs.prioritize(self.desk.encode_call(*call)).body)
                passed = [each["Host"] for each in scores if each["Score"] == 10]
            if passed:
                assigned[uid] = passed[0]
        return assigned

    def _fits_jointly(self, group: DrawnGroup) -> bool:
        """Whether enough of its pods find cards that nobody else has, by trying all choices."""
        used = sum(self.bound.values(), start=Counter[tuple[str, int | None]]())
        for place in self.desk.ledger.places.list_held_places():
            if place.pod.uid not in group.waiting:
                used.update({(place.node_name, share.index): share.units for share in place.allocation.cards})
        free = [
            card.units - used[node.name, card.index] for node in self.desk.ledger.list_nodes() for card in node.cards
        ]
        return _fits_some(sorted(group.waiting.values()), group.needed, free)

    def _build_member(self, group: DrawnGroup, uid: str) -> Pod:
        pod = ledger_pod(uid, units=group.waiting[uid], version="1")
        return replace(pod, group=group.key, may_bind_late=True)

    def _note_bound(self, pod: Pod) -> None:
        """Its Binding is written, and the watch shows that."""
        reservation = self.desk.ledger.places.get_reservation(pod.uid)
        assert reservation is not None
        name, cards = reservation.node_name, reservation.allocation.cards
        self.bound[pod.uid] = Counter({(name, share.index): share.units for share in cards})
        record = Record("vrampack", cards)
        self.desk.ledger.update_pod(replace(pod, node_name=name, record=record, resource_version="2"))

    def _remove(self, uid: str) -> None:
        self.bound.pop(uid, None)
        self.desk.ledger.remove_pod(uid)

    def _list_held(self, uid: str) -> Sequence[Any]:
        return self.desk.ledger.places.list_held_places_of(uid)

    def _make_name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"


def _fits_some(wanted: Sequence[int], needed: int, free: list[int]) -> bool:
    """Whether `needed` of these pods fit cards with so many free units."""
    if needed <= 0:
        return True
    if len(wanted) < needed:
        return False
    for index in {units: index for index, units in enumerate(free) if units >= wanted[0]}.values():
        if _fits_some(wanted[1:], needed - 1, [*free[:index], free[index] - wanted[0], *free[index + 1 :]]):
            return True
    return _fits_some(wanted[1:], needed, free)


async def test_a_group_is_refused_only_if_it_does_not_fit_and_gets_what_was_chosen_for_it() -> None:
    seen: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = GroupWorld(seed)
        try:
            for _ in range(STEPS):
                await world.take_step()
            world.check_end()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        seen += world.seen
    assert min(seen["whole"], seen["refused"]) >= WORLDS
