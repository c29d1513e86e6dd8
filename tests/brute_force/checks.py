"""Calls the verbs of one world, and judges every answer and every Binding.

verdicts      filter says of every node what `judge.py` says, with the same words, and prioritize ranks only nodes that fit
decisions     cards are reserved that fit, a Binding names these cards, and a refused bind names the reason
Bindings      no card has more units than it has when a Binding is written, and what was written stays counted
answers       bind says yes only if the API server shows the pod there, and no only if it does not
the end       once all is answered and heard, no place is left, and every card holds what the API server says
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.state.places import Reservation
from extender.wire.codec import VerbResponse
from tests.brute_force.judge import HeardCluster, Judge, PendingPlace
from tests.brute_force.world import BruteForceWorld, WrongAnswerError, get_name, is_finished
from tests.simulation.network import encode
from vrampack.cards.allocation import Allocation
from vrampack.cards.pod import Pod
from vrampack.cards.records import write_record
from vrampack.simulator.resource_kinds import NODE, POD, Object

MOST_SCORES = 6
OUTCOME_UNKNOWN = "bind outcome unknown"


@dataclass(eq=False, slots=True)
class BindCall:
    """One bind call of a scheduler."""

    pod: Object
    node: str
    task: asyncio.Task[VerbResponse]


@dataclass(frozen=True, slots=True)
class SentBinding:
    """The latest Binding of a pod to a node."""

    version: str
    """The version of the pod that it names."""
    allocation: Allocation
    notes: Mapping[str, str]
    """Its annotations."""

    def has_decision_of(self, later: SentBinding) -> bool:
        """Whether a later one was sent without another decision."""
        return self.version == later.version and self.allocation is later.allocation


class JudgedVerbs:
    """The verbs of one world, beside what they should do."""

    def __init__(self, world: BruteForceWorld) -> None:
        self._world = world
        self._network = world.network
        self._ledger = world.process.ledger
        self.judge = Judge()
        self.calls: Counter[str] = Counter()
        self.reasons: set[str] = set()
        self.asked: Counter[tuple[str, str]] = Counter()
        """How often bind was called, by uid and node."""
        self.binds: list[BindCall] = []
        """Those that wait for their answer."""
        self._sent: dict[tuple[str, str], SentBinding] = {}
        """By uid and node."""
        self._assume = self._ledger.assume
        self._ledger.assume = self._judge_reservation  # type: ignore[method-assign]  # a Binding may be sent seconds later
        self._written: dict[str, str] = {}
        """The node of every pod that the extender bound, by uid."""
        world.network.on_bind.append(self._check_sent_binding)
        world.network.on_bound.append(self._note_written)
        world.on_ready.append(self._check_answers)

    def filter(self, pod: Object) -> list[str]:
        """The nodes that pass, after they were compared with the judge's."""
        names = self._world.list_node_names()
        roll = self._world.random.random()
        if roll < 0.2:
            names = self._world.random.sample(names, self._world.random.randint(0, len(names)))
        elif roll < 0.25:
            names = [*names, "unknown"]
        self._check_places()
        wanted = self.judge.judge_pod(self._hear(), pod, names)
        self.calls["filter"] += 1
        body = encode({"Pod": POD.add_type_meta(pod), "NodeNames": names})
        answer = msgspec.json.decode(self._world.process.verbs.filter(body).body)
        if answer["Error"]:
            if answer["Error"] != f"not ready: {self._world.process.freshness.find_unready_reason()}":
                raise WrongAnswerError(f"filter of {get_name(pod)} says {answer['Error']}")
            return []
        passed: list[str] = answer["NodeNames"]
        fits = [name for name, verdict in wanted.items() if not verdict.reason]
        refused = {name: (verdict.reason, verdict.is_never) for name, verdict in wanted.items() if verdict.reason}
        said = {
            name: (text, is_never)
            for field, is_never in (("FailedNodes", False), ("FailedAndUnresolvableNodes", True))
            for name, text in (answer[field] or {}).items()
        }
        self.reasons |= {text for text, _ in said.values()}
        is_decided = self._world.settings.decide.default != "prioritize" and len(fits) > 1
        is_right = passed == fits or (is_decided and len(passed) == 1 and passed[0] in fits)
        if not passed:  # then it may be a cached one, whose reasons may be older, but never of another kind
            said |= {name: each for name, each in refused.items() if not each[1] and not said.get(name, each)[1]}
        if not is_right or said != refused:
            raise WrongAnswerError(f"filter of {get_name(pod)} says {passed}, {said}; right is {fits}, {refused}")
        return passed

    def prioritize(self, pod: Object, passed: list[str]) -> str:
        """The best node. Every ranked one fits, and the best has the highest score."""
        self.calls["prioritize"] += 1
        body = encode({"Pod": POD.add_type_meta(pod), "NodeNames": passed})
        ranked = msgspec.json.decode(self._world.process.verbs.prioritize(body).body)
        hosts = [each["Host"] for each in ranked]
        scores = [each["Score"] for each in ranked]
        if len(set(hosts)) != min(MOST_SCORES, len(passed)) or not set(hosts) <= set(passed):
            raise WrongAnswerError(f"prioritize of {get_name(pod)} ranks {hosts} of {passed}")
        if scores[0] != 10 or scores != sorted(scores, reverse=True):
            raise WrongAnswerError(f"prioritize of {get_name(pod)} scores {ranked}")
        return str(hosts[0])

    def bind(self, pod: Object, node: str) -> str:
        """Call it; what it sends at once, and what it refuses at once, is judged."""
        uid = pod["metadata"]["uid"]
        self.calls["bind"] += 1
        self.asked[uid, node] += 1
        known = self._ledger.get_pod(uid)
        heard_pod = pod if known is None else self._world.versions[uid, known.resource_version]
        verdict = self.judge.judge_pod(self._hear(), heard_pod, [node])[node]
        asked = {"PodName": get_name(pod), "PodNamespace": pod["metadata"]["namespace"], "PodUID": uid, "Node": node}
        calls = [*self._network.calls]
        call = BindCall(pod, node, self._world.process.loop.create_task(self._world.process.verbs.bind(encode(asked))))
        self.binds.append(call)
        self._world.run_ready()
        if call.task.done() and calls == self._network.calls:
            error = msgspec.json.decode(call.task.result().body)["Error"]
            refused = f"node {node}: {verdict.reason}"
            if error.startswith(f"node {node}: ") and not (verdict.reason and error.startswith(refused)):
                raise WrongAnswerError(f"bind of {get_name(pod)} says {error}; right is {refused}")
        return f"bind {get_name(pod)} to {node}"

    def list_possible_holders(self, node: str) -> list[Object]:
        """Who holds something there, or still may."""
        holders = {pod["metadata"]["uid"]: pod for pod in self._world.list_live_pods(node)}
        for (uid, name), sent in self._sent.items():
            pod = self._world.find_pod(uid)
            if name == node and pod is not None and uid not in holders:
                metadata = pod["metadata"]
                written = {**(metadata.get("annotations") or {}), **sent.notes}
                holders[uid] = {**pod, "metadata": {**metadata, "annotations": written}, "pending": True}
        return list(holders.values())

    def check_end(self) -> None:
        if self.binds or self._network.calls or (left := self._ledger.places.list_reservations()):
            raise WrongAnswerError(f"left: {self.binds}, {[*map(str, self._network.calls)]}, {left}")
        for pod in self._world.list_pods():
            known = self._ledger.get_pod(pod["metadata"]["uid"])
            if not is_finished(pod) and (known is None or known.resource_version != pod["metadata"]["resourceVersion"]):
                raise WrongAnswerError(f"{get_name(pod)} is known as {known}")
        if {node.name for node in self._ledger.list_nodes()} != set(self._world.list_node_names()):
            raise WrongAnswerError(f"nodes {[node.name for node in self._ledger.list_nodes()]} are known")
        for name in self._world.list_node_names():
            known_node = self._ledger.get_node(name)
            held = {card.index: card.used_units for card in known_node.cards} if known_node is not None else {}
            for card in self.judge.count_used(self._world.store.get(NODE, "", name), self._world.list_live_pods(name)):
                if held.get(card.index) != card.used:
                    raise WrongAnswerError(f"{name} card {card.index} holds {card.used}, the ledger counts {held}")

    def _judge_reservation(self, pod: Pod, node_name: str, allocation: Allocation) -> Reservation:
        self._judge_cards(pod, pod.resource_version, node_name, allocation.card_indices)
        return self._assume(pod, node_name, allocation)

    def _check_sent_binding(self, _process: str, uid: str, node: str, notes: Mapping[str, str]) -> None:
        """It has the cards that are reserved, which fit also a version of the pod that came later."""
        reservation = self._ledger.places.get_reservation_on(uid, node)
        if reservation is None:
            raise WrongAnswerError(f"a Binding of {uid} to {node} is sent without a place")
        cards = [each["index"] for each in json.loads(notes["vrampack.dev/allocation"])["cards"]]
        if cards != reservation.allocation.card_indices:
            raise WrongAnswerError(f"a Binding of {uid} to {node} has cards {cards}, not those of {reservation}")
        known = self._sent.get((uid, node))
        self._sent[uid, node] = sent = SentBinding(reservation.binding_version, reservation.allocation, notes)
        if known is None or known.has_decision_of(sent) or reservation.pod.resource_version == sent.version:
            return
        self._judge_cards(reservation.pod, sent.version, node, cards)

    def _judge_cards(self, pod: Pod, version: str, node: str, cards: Sequence[int]) -> None:
        """Whether the pod in this version may take them. What is kept for others was found beside its earlier place, if it has one."""
        verdict = self.judge.judge_pod(self._hear(), self._world.versions[pod.uid, version], [node])[node]
        if not verdict.allows(cards):
            raise WrongAnswerError(f"{pod} takes cards {cards} of {node}; right is {verdict}")

    def _note_written(self, _process: str, pod: Object) -> None:
        """No card has more than it has, and the pod is on the node that was asked for."""
        name = pod["spec"]["nodeName"]
        self._written[pod["metadata"]["uid"]] = name
        if name in self._world.list_node_names():
            node = self._world.store.get(NODE, "", name)
            for card in self.judge.count_used(node, self._world.list_live_pods(name)):
                if card.used > card.units:
                    holders = [get_name(each) for each in self._world.list_live_pods(name)]
                    text = f"{card.used} of {card.units} units held on {name} card {card.index} by {holders}"
                    raise WrongAnswerError(f"over-commit by {get_name(pod)}: {text}")

    def _check_places(self) -> None:
        """What the extender has bound counts, whatever it was answered and whatever it has heard."""
        for pod in self._world.list_pods():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if node and self._written.get(uid) == node and not is_finished(pod):
                known = self._ledger.get_pod(uid)
                if self._ledger.places.get_reservation_on(uid, node) is None and (
                    known is None or known.node_name != node
                ):
                    raise WrongAnswerError(f"{get_name(pod)} was bound to {node} and is counted nowhere")

    def _check_answers(self) -> None:
        for call in [call for call in self.binds if call.task.done()]:
            self.binds.remove(call)
            self._check_answer(call)

    def _check_answer(self, call: BindCall) -> None:
        if error := call.task.exception():
            raise WrongAnswerError(f"bind of {get_name(call.pod)} raised {error!r}")
        said = msgspec.json.decode(call.task.result().body)["Error"]
        uid = call.pod["metadata"]["uid"]
        pod = self._world.find_pod(uid)
        node = None if pod is None else pod["spec"].get("nodeName")
        self._world.trace.append(
            f"{self._world.seconds:7.2f} answer of bind {get_name(call.pod)} to {call.node}: {said or 'bound'}"
        )
        if not said and pod is not None and (node != call.node or self._written.get(uid) != node):
            raise WrongAnswerError(f"bind of {get_name(pod)} to {call.node} says yes, the API server shows {node}")
        is_no = said and not said.startswith(OUTCOME_UNKNOWN)
        if is_no and node == call.node and self._written.get(uid) == node and self.asked[uid, call.node] == 1:
            raise WrongAnswerError(f"bind of {call.pod['metadata']['name']} to {node} says {said}, and it is bound")

    def _find_notes(self, reservation: Reservation) -> Mapping[str, str]:
        """The annotations of its Binding, which may wait for others to be answered before it is sent."""
        sent = self._sent.get((reservation.pod.uid, reservation.node_name))
        if sent is not None and sent.allocation is reservation.allocation:
            return sent.notes
        node, request = self._ledger.get_node(reservation.node_name), reservation.pod.request
        if node is None or request is None:
            return {}
        return write_record(reservation.allocation, request, node, now_ns=0)

    def _hear(self) -> HeardCluster:
        is_new = self._ledger.placement == self._world.placement
        places = [
            PendingPlace(
                self._world.versions[each.pod.uid, each.pod.resource_version], each.node_name, self._find_notes(each)
            )
            for each in self._ledger.places.list_reservations()
        ]
        return HeardCluster(
            nodes={
                name: self._world.versions[f"node {name}", version]
                for name, version in self._world.hosts.versions.items()
            },
            pods=[self._world.versions[pod.uid, pod.resource_version] for pod in self._ledger.list_pods()],
            places=places,
            rules=self._world.drafted_rules if is_new else self._world.rules,
            namespaces=self._world.namespaces,
        )
