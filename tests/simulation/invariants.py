"""What must hold after every step, judged by the auditor's own reading of the raw objects wherever it has one.

`after` looks at what a step may have changed: the API's truth (I1, I2, I6), the answers that the scheduler got (I4), and
every extender that has heard everything (I3). `settled` is for the end, when faults have stopped and time has passed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from extender.state.ledger import Ledger
from tests.auditor import audit
from tests.auditor import pods as audited
from tests.auditor.binds import BindAnswer, BindCall, read_binds, wrong_answers
from tests.auditor.cards import NodeCards, read_node
from tests.auditor.holdings import find_oversold_cards
from tests.auditor.terms import Terms, Violation
from tests.simulation.network import encode
from tests.simulation.objects import LEGACY, allocation_of
from tests.simulation.process import RESOURCE, SimulatedExtender
from tests.simulation.world import Bind, SimulationWorld, draw_settings
from tests.support.builders import UNIT_MIB
from vrampack.cards.node import Node
from vrampack.cards.pod import Pod
from vrampack.kube.objects import NodeObject, PodObject, to_node, to_pod
from vrampack.simulator.resource_kinds import Object

TERMS = Terms(whole_cards_are_paid=True)
PLACEMENT = draw_settings().settings.build_placement()
READ = {"resource": RESOURCE, "count_resource": "aliyun.com/gpu-count"}


class BrokenPromiseError(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class InvariantChecker:
    """Watches one world. What it has read of an object is kept by the object's version."""

    def __init__(self, world: SimulationWorld) -> None:
        self._world = world
        self._kept: dict[tuple[Any, ...], Any] = {}  # Any: one kind of value per kind of key
        self._version = 0
        self._heard = 0
        self._posted: set[tuple[int, str, str]] = set()
        self._placed: dict[str, dict[str, str]] = {}
        """Of each process since its start: the nodes of the pods that it bound, by uid."""
        self._ledgers: dict[str, Ledger] = {}
        self._held: set[tuple[Ledger, int]] = set()
        """Ledgers and attempts whose places they hold."""
        self._decided: set[int] = set()
        """Attempts that were looked at."""
        self._calls: dict[str, list[BindCall]] = {}
        self._faults: list[str] = []
        world.network.on_bind.append(self._posting)
        world.network.on_bound.append(self._bound)
        world.on_filter.append(self._filtered)

    def check_step(self) -> None:
        """Raises `BrokenPromiseError` with the first thing that is wrong."""
        for process in self._world.processes.values():
            if crash := process.crashed():
                raise BrokenPromiseError("crash", f"{process.name}: {crash}")
        for crash in self._world.crashes:
            raise BrokenPromiseError("crash", crash)
        for fault in self._faults:
            raise BrokenPromiseError(*fault.split(": ", 1))
        if self._version != self._world.store.version:
            self._version = self._world.store.version
            self._truth()
        self._answers()
        for process in self._world.processes.values():
            self._keeps_places(process)
            self._keeps_holds(process)
            self._compare(process)

    def _bound(self, process: str, pod: Object) -> None:
        uid, notes = pod["metadata"]["uid"], pod["metadata"].get("annotations", {})
        if process in self._placed and TERMS.allocation in notes and uid not in self._world.spoiled:
            self._placed[process][uid] = pod["spec"]["nodeName"]

    def _keeps_places(self, process: SimulatedExtender) -> None:
        """I1: what a process has bound counts until the pod is over, whatever it was answered and whatever it has heard."""
        if self._ledgers.get(process.name) is not process.ledger:
            self._ledgers[process.name], self._placed[process.name] = process.ledger, {}
        placed = self._placed[process.name]
        for pod in self._world.pods() if placed else ():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if node and placed.get(uid) == node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                known = process.ledger.get_pod(uid)
                is_held = process.ledger.places.get_reservation_on(uid, node) or (
                    known is not None and known.node_name == node
                )
                if not is_held:
                    raise BrokenPromiseError("I1", f"{process.name} bound {uid} to {node} and counts it nowhere")

    def _keeps_holds(self, process: SimulatedExtender) -> None:
        """I13: a pod that may be bound late has a place from the choice of its node to its bind."""
        unbound = {pod["metadata"]["uid"]: pod for pod in self._world.pods() if not pod["spec"].get("nodeName")}
        for decided in self._world.decided:
            key = (process.ledger, decided.number)
            pod = unbound.get(decided.uid)
            is_late = pod is not None and _may_bind_late(pod)
            if (
                decided.process != process.name
                or not is_late
                or (process.name, decided.uid) in self._world.asked_to_bind
            ):
                self._held.discard(key)
                continue
            is_held = bool(process.ledger.places.list_held_places_of(decided.uid))
            is_placed = is_held or process.ledger.places.get_reservation(decided.uid) is not None
            if decided.number not in self._decided and not is_placed:
                raise BrokenPromiseError(
                    "I13", f"{process.name} names {decided.node} for {decided.pod} and holds nothing"
                )
            if key in self._held and not is_held:
                raise BrokenPromiseError(
                    "I13", f"{process.name} gives up the place of {decided.pod}, which still waits"
                )
            self._decided.add(decided.number)
            if is_held:
                self._held.add(key)

    # The API's truth

    def _truth(self) -> None:
        pods, nodes = self._world.pods(), {node["metadata"]["name"]: node for node in self._world.nodes()}
        seen = [self._pod(pod) for pod in pods]
        if self._world.mode == "honest":
            for name, node in nodes.items():
                on_node = [pod for pod in seen if pod.node == name]
                _raise_first(find_oversold_cards(self._node(node), on_node, count_unrecorded=True))
        for pod in pods:
            if pod["metadata"]["uid"] not in self._world.spoiled:
                at = nodes.get(pod["spec"].get("nodeName"))
                if at is not None or not pod["spec"].get("nodeName"):
                    self._alone(pod, at)

    def _alone(self, pod: Object, node: Object | None) -> None:
        """I2 and I6 of one pod, at the moment in which it was bound: later its node's cards may be others."""
        key = ("alone", pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])
        if key not in self._kept:
            self._kept[key] = True
            found = audit.audit_objects([pod], [] if node is None else [node])
            _raise_first(each for each in found if each.invariant in self._judged(pod))

    def _judged(self, pod: Object) -> tuple[str, ...]:
        """Where cards change under a pod, only its Binding itself is judged; see `_posting`."""
        if self._world.mode == "hostile" and pod["spec"].get("nodeName"):
            return ()
        return ("I2", "I6")

    def _pod(self, pod: Object) -> audited.AuditedPod:
        key = ("audited", pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])
        if key not in self._kept:
            self._kept[key] = audited.read_pod(pod, TERMS)
        found: audited.AuditedPod = self._kept[key]
        return found

    def _node(self, node: Object) -> NodeCards:
        key = ("node", node["metadata"]["name"], node["metadata"]["resourceVersion"])
        if key not in self._kept:
            self._kept[key] = read_node(node, TERMS)
        found: NodeCards = self._kept[key]
        return found

    # What was said

    def _answers(self) -> None:
        """I4, of every answer when it is given and whenever more is known."""
        new = self._world.transcript[self._heard :]
        self._heard = len(self._world.transcript)
        calls = read_binds(new)
        for call in calls:
            self._calls.setdefault(call.pod, []).append(call)
        for name in dict.fromkeys(call.pod for call in calls):
            self._answered(name)
        for call in calls:
            self._refused(call)

    def _refused(self, call: BindCall) -> None:
        """A definite no leaves no place behind, unless another call for the same may have got it."""
        others = (*self._calls[call.pod], *(_unknown(bind) for bind in self._world.binds))
        if {each.said for each in others if (each.uid, each.node) == (call.uid, call.node)} != {BindAnswer.NO}:
            return
        for process in self._world.processes.values():
            if process.ledger.places.get_reservation_on(call.uid, call.node) is not None:
                text = f"{process.name} said no to {call.pod} and keeps a place for it on {call.node}"
                raise BrokenPromiseError("I5", text)

    def _answered(self, name: str) -> None:
        """All pods of one name together: the answer about one uid must not be true of another."""
        pods = [pod for pod in map(self._pod, self._world.pods()) if pod.name == name]
        if not self._world.spoiled.isdisjoint(pod.uid for pod in pods):
            return
        under_way = [_unknown(bind) for bind in self._world.binds]
        calls = [*self._calls[name], *(call for call in under_way if call.pod == name)]
        _raise_first(wrong_answers(calls, pods, complete=False))

    def _posting(self, process: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """A Binding is about to be sent: its place is reserved, and there is room for it as far as was heard.

        One that is sent again keeps its place, whichever pods came there in between.
        """
        ledger = self._world.processes[process].ledger
        shares = allocation_of(annotations)
        key = (id(ledger), uid, node)
        if not shares or key in self._posted:
            return
        self._posted.add(key)
        seen = ledger.get_node(node)
        if seen is None or ledger.places.get_reservation_on(uid, node) is None:
            self._faults.append(f"I1: {process} sends a Binding of {uid} to {node} without a reservation")
            return
        for card in seen.cards:
            if card.index in dict(shares) and (card.is_overcommitted or not card.is_usable):
                text = f"{process} puts {uid} on {node} card {card.index}: {card.used_units} of {card.units}"
                self._faults.append(f"I1: {text}, usable: {card.is_usable}")

    def _filtered(self, process: SimulatedExtender, pod: Object, answer: Mapping[str, Any]) -> None:
        """I8: sound and complete, against counting by hand in the extender's own view."""
        if answer["Error"]:
            if not process.freshness.find_unready_reason():
                raise BrokenPromiseError("I8", f"{process.name} is ready and filter says {answer['Error']}")
            return
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        offered = {node["metadata"]["name"] for node in self._world.nodes()} - self._world.cordoned
        for node_name in offered:
            want = pod_fits(process.ledger, node_name, pod)
            if want != (node_name in answer["NodeNames"]):
                text = f"{process.name} filter says {not want} for {name} ({uid}) on {node_name}: {answer}"
                raise BrokenPromiseError("I8", text)

    # The ledgers

    def _compare(self, process: SimulatedExtender) -> None:
        """I3: once everything was heard, the ledger is what a new one would be. Reservations are its own business."""
        state = (self._world.store.version, process.ledger.generation, id(process))
        if process.seen == state or not is_caught_up(self._world, process):
            return
        process.seen = state
        rebuilt = self._rebuilt()
        if (mine := count_pods_of(process.ledger)) != (theirs := count_pods_of(rebuilt)):
            wrong = sorted(uid for uid in mine.keys() | theirs.keys() if mine.get(uid) != theirs.get(uid))
            text = (
                f"{process.name} has {[mine.get(uid) for uid in wrong]}, the API {[theirs.get(uid) for uid in wrong]}"
            )
            raise BrokenPromiseError("I3", text)
        for each in process.ledger.places.list_reservations():
            rebuilt.assume(each.pod, each.node_name, each.allocation)
        for held in process.ledger.places.list_held_places():
            rebuilt.hold_place(held.pod, held.node_name, held.allocation, held.score)
        if cards_of(process.ledger) != cards_of(rebuilt):
            raise BrokenPromiseError("I3", f"{process.name} counts {_used(process.ledger)}, the API {_used(rebuilt)}")

    def _rebuilt(self) -> Ledger:
        """A ledger that was only told the API's state, and agrees with the auditor about what is over."""
        ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: 0.0, placement=PLACEMENT)
        for node in self._world.nodes():
            ledger.update_node(self._read(node, NodeObject).facts)
        before = ledger.begin_list()
        for pod in self._world.pods():
            ledger.update_listed_pod(self._read(pod, PodObject))
        ledger.end_list(before, {pod["metadata"]["uid"] for pod in self._world.pods()})
        self._agrees(ledger)
        return ledger

    def _agrees(self, ledger: Ledger) -> None:
        """What the auditor finds overcommitted is what people are shown.

        Of forged records, and of cards that are gone, the ledger counts more than the auditor; and it takes the index of
        a record on a legacy node where the auditor looks for the uuid.
        """
        cards = [(node.name, card) for node in ledger.list_nodes() for card in node.cards]
        over = {f"node {name} card {card.index}" for name, card in cards if card.is_overcommitted}
        pods = [self._pod(pod) for pod in self._world.pods()]
        is_hostile = self._world.mode == "hostile"
        found: set[str] = set()
        for node in self._world.nodes():
            name = node["metadata"]["name"]
            if not (is_hostile and name == LEGACY):
                on_node = [pod for pod in pods if pod.node == name]
                broken = find_oversold_cards(self._node(node), on_node, count_unrecorded=True)
                found |= {each.object for each in broken if "units held" in each.text}
        if found - over or (over - found and not is_hostile):
            raise BrokenPromiseError(
                "I1", f"the ledger shows {sorted(over)} as overcommitted, the auditor {sorted(found)}"
            )

    def _read(self, item: Object, kind: type[PodObject | NodeObject]) -> Any:  # noqa: ANN401 - a Pod or a NodeReading
        key = (kind, item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        if key not in self._kept:
            raw = encode(item)
            if kind is NodeObject:
                self._kept[key] = to_node(msgspec.json.decode(raw, type=NodeObject), unit_mib=UNIT_MIB, **READ)
            else:
                pod = to_pod(msgspec.json.decode(raw, type=PodObject), resource=RESOURCE)
                self._kept[key] = PLACEMENT.resolve_pod(pod)
        return self._kept[key]

    # The end

    def check_settled(self) -> None:
        """Faults have stopped, 90 s have passed: no pod waits that could run (I10), and no place is kept for a pod that is gone (I5)."""
        self.check_step()
        pods = {pod["metadata"]["uid"]: pod for pod in self._world.pods()}
        for process in self._world.processes.values():
            if problem := process.freshness.find_unready_reason():
                raise BrokenPromiseError("I10", f"{process.name} is not ready: {problem}")
            if not is_caught_up(self._world, process):
                raise BrokenPromiseError("I10", f"{process.name} does not watch")
            for each in process.ledger.places.list_reservations():
                pod = pods.get(each.pod.uid)
                if pod is None or pod["spec"].get("nodeName"):
                    raise BrokenPromiseError(
                        "I5", f"{process.name} keeps a place on {each.node_name} for {each.pod.uid}"
                    )
            for held in process.ledger.places.list_held_places():
                pod = pods.get(held.pod.uid)
                if pod is None or pod["spec"].get("nodeName"):
                    raise BrokenPromiseError("I13", f"{process.name} holds {held.node_name} for {held.pod.uid}")
            for pod in self._world.pending():
                where = [
                    name
                    for node in self._world.nodes()
                    if pod_fits(process.ledger, name := node["metadata"]["name"], pod)
                ]
                if where:
                    raise BrokenPromiseError("I10", f"{pod['metadata']['name']} waits and fits on {where}")
        nodes = self._world.nodes() if self._world.mode == "honest" else []
        excused = {f"pod default/{pod['metadata']['name']}" for uid, pod in pods.items() if uid in self._world.spoiled}
        known = {node["metadata"]["name"] for node in nodes}
        here = [pod for pod in pods.values() if pod["spec"].get("nodeName", "") in {"", *known}]
        _raise_first(iter(audit.audit_objects(here, nodes, self._world.transcript, complete=True, excused=excused)))


def is_caught_up(world: SimulationWorld, process: SimulatedExtender) -> bool:
    """Whether both watches of the process are open and have told everything."""
    open_ = [stream for stream in world.network.streams if stream.process == process.name and stream.is_open]
    return len(open_) == 2 and not any(stream.feed.pending() or stream.lines for stream in open_)


def pod_fits(ledger: Ledger, name: str, pod: Object) -> bool:
    """By hand, from who holds what: does the node have cards enough for the pod?"""
    node, request = ledger.get_node(name), _asked(pod)
    units, count, is_whole = request
    if node is None or not units:
        return node is not None or not units
    if node.problem or count < 1:
        return False
    used = _used_by_others(ledger, node, pod["metadata"]["uid"])
    free = [card.units - used[card.index] for card in node.cards if card.healthy and not card.cordoned]
    sizes = [card.units for card in node.cards if card.healthy and not card.cordoned]
    if is_whole:
        large = sorted(size for room, size in zip(free, sizes, strict=True) if room == size >= units * 15 / 16 / count)
        return len(large) >= count and sum(large[:count]) <= units
    return sum(room >= units // count for room in free) >= count


def _asked(pod: Object) -> tuple[int, int, bool]:
    labels = pod["metadata"].get("labels") or {}
    limits = pod["spec"]["containers"][0]["resources"].get("limits") or {}
    is_whole = "ack.gpushare.placement" in labels
    return int(limits.get(RESOURCE, 0)), int(labels.get("aliyun.com/gpu-count", 1)), is_whole


def _may_bind_late(pod: Object) -> bool:
    return bool(pod["spec"].get("volumes") and _asked(pod)[0] and "deletionTimestamp" not in pod["metadata"])


def _used_by_others(ledger: Ledger, node: Node, uid: str) -> Counter[int]:
    used: Counter[int] = Counter()
    for hold in ledger.list_holds(node.name):
        if hold.pod.uid != uid or (
            hold.state in ("bound", "terminating") and ledger.places.get_reservation_on(uid, node.name) is None
        ):
            used.update(hold.units)
    return used


def count_pods_of(ledger: Ledger) -> dict[str, Pod]:
    return {pod.uid: pod for pod in ledger.list_pods()}


def cards_of(ledger: Ledger) -> dict[str, object]:
    return {node.name: (node.cards, node.largest_free_units, node.free_units) for node in ledger.list_nodes()}


def _used(ledger: Ledger) -> str:
    return json.dumps({node.name: [card.used_units for card in node.cards] for node in ledger.list_nodes()})


def _unknown(bind: Bind) -> BindCall:
    return BindCall(f"default/{bind.pod}", bind.uid, bind.node, BindAnswer.UNKNOWN)


def _raise_first(found: Iterator[Violation]) -> None:
    for violation in found:
        raise BrokenPromiseError(violation.invariant, f"{violation.object}: {violation.text}")
