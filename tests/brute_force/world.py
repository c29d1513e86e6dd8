"""One drawn cluster, its extender and its schedulers: draws one step after the other, and judges every answer.

verdicts      filter says of every node what `judge.py` says, with the same words, and prioritize ranks only nodes that fit
decisions     a Binding that is sent names cards that fit, and a refused bind names the reason
Bindings      no card has more units than it has when a Binding is written, and what was written stays counted
answers       bind says yes only if the API server shows the pod there, and no only if it does not
the end       once all is answered and heard, no place is left, and every card holds what the API server says
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random
from typing import Any

import msgspec

from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.state.host_usage import HostUsage
from extender.state.namespaces import NamespaceLabels, NamespaceSink
from extender.state.placement_change import apply_placement
from extender.wire.codec import VerbResponse
from tests.brute_force.clusters import change_cards, draw_node, draw_nodes, draw_placement, draw_pod
from tests.brute_force.judge import HeardCluster, Judge, PendingPlace
from tests.simulation.api import Network
from tests.simulation.network import encode
from tests.simulation.process import SimulatedExtender
from tests.simulation.steps import NETWORK_STEPS, Step
from tests.simulation.world import reflectors_without_chance
from tests.support.ruled_clusters import NAMESPACES
from vrampack.cards.allocation import Allocation
from vrampack.kube.objects import NamespaceObject, NodeObject, ObjectMeta
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MOST_NODES, MOST_PODS = 9, 16
CALLS_PER_WORLD = 125
MOST_SCORES = 6
OUTCOME_UNKNOWN = "bind outcome unknown"
TRACED_STEPS = 40
SETTLE_ROUNDS, SETTLE_SECONDS = 24, 2.0
"""A place is looked up every 15 s at least."""


class WrongAnswerError(Exception):
    """The extender and the judge disagree, or a promise is broken."""


class HeardNodes(HostUsage):
    """Notes which version of each node the extender has heard."""

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__(is_kept=is_kept)
        self.versions: dict[str, str] = {}

    def update_node(self, node: NodeObject) -> None:
        super().update_node(node)
        self.versions[node.metadata.name] = node.metadata.resource_version

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self.versions.pop(name, None)


@dataclass(eq=False, slots=True)
class BindCall:
    """One bind call of a scheduler."""

    pod: Object
    node: str
    task: asyncio.Task[VerbResponse]


class BruteForceWorld:
    """Drawn from `seed`; see `run_world`."""

    def __init__(self, seed: int, metrics: ExtenderMetrics) -> None:
        self.random = random = Random(seed)
        self.seconds = 0.0
        self.throttled_until = 0.0
        self.chosen = ""
        self.calls: Counter[str] = Counter()
        self.reasons: set[str] = set()
        self.trace: list[str] = []
        self._made = 0
        self._uids = 0
        self._versions: dict[tuple[str, str], Object] = {}
        """Every state of every pod and node, by uid and resourceVersion."""
        self._judge = Judge()
        self._sent: dict[tuple[str, str], tuple[Allocation, Mapping[str, str]]] = {}
        """By uid and node: the allocation that the Binding was decided with, and its annotations."""
        self._written: dict[str, str] = {}
        """The node of every pod that the extender bound, by uid."""
        self._asked: Counter[tuple[str, str]] = Counter()
        """How often bind was called, by uid and node."""
        self._binds: list[BindCall] = []
        self._gone: dict[str, Object] = {}
        """Nodes that were removed and may come back."""
        self._metrics = metrics
        self.store = ObjectStore(now=self._now, new_uid=self._new_uid)
        self.store.subscribe(self._note_change)
        self.network = Network()
        self.network.on_bind.append(self._check_sent_binding)
        self.network.on_bound.append(self._note_written)
        for node in draw_nodes(random, random.randint(1, MOST_NODES)):
            self.store.restore(NODE, "", node)
        self._namespaces: dict[str, Object] = {name: {"owner": random.choice(("x", "y"))} for name in NAMESPACES}
        self._rules, given = self._draw_placement()
        decide = random.choices(("prioritize", "filter", "auto"), (8, 1, 1))[0]
        self._settings = ExtenderConfiguration.model_validate(
            {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration", "decide": decide, **given}
        )
        self._placement = self._settings.build_placement()
        self._drafted_rules: Object = self._rules
        self.hosts = HeardNodes(is_kept=self._settings.select_policies().reads_hosts)
        self.process = SimulatedExtender(
            "e0",
            store=self.store,
            network=self.network,
            metrics=metrics,
            settings=self._settings,
            clock=lambda: self.seconds,
            is_shuffled=False,
            hosts=self.hosts,
        )
        self._namespace_sinks: list[NamespaceSink] = []
        """That of the settings in force and, during a reload, that of the next ones."""
        self._step_table = self._list_steps()
        self._answer_all()
        if keys := self._placement.list_namespace_label_keys():
            labels = self._list_namespaces(keys)
            self.process.loop.create_task(apply_placement(self.process.ledger, self._placement, labels))
            self._run_ready()

    # Steps

    def take_step(self) -> None:
        steps, weights = self._step_table
        name, step = self.random.choices(steps, cum_weights=weights)[0]
        done = step()
        if done is not None:
            self.trace.append(f"{self.seconds:7.2f} {name} {done}")
            self._run_ready()

    def settle(self) -> None:
        """No more faults: everything is answered and heard, and time passes until nothing is open."""
        self.throttled_until = 0.0
        for _ in range(SETTLE_ROUNDS):
            self._answer_all()
            self._pass_time(SETTLE_SECONDS)
            self._send_bookmarks()
            watched = {stream.resource for stream in self.network.streams if stream.is_open}
            if len(watched) == 2 and not (self.process.ledger.list_reservations() or self._binds):
                break
        self._answer_all()
        self._check_end()

    def close(self) -> None:
        self.process.loop.kill()

    def _list_steps(self) -> tuple[list[tuple[str, Callable[[], str | None]]], list[float]]:
        random = self.random
        own: dict[str, tuple[float, Callable[[], str | None]]] = {
            "schedule": (40, self._schedule_pod),
            "filter": (12, self._filter_queue),
            "bind again": (7, self._bind_again),
            "storm": (2, self._storm),
            "create": (12, self._create_pod),
            "delete": (4, self._delete_pod),
            "finish": (2, self._finish_pod),
            "relabel": (1, self._relabel_pod),
            "nominate": (5, self._nominate_pod),
            "change node": (3, self._change_node),
            "node": (1.5, self._add_or_remove_node),
            "foreign": (2, self._bind_as_another),
            "namespace": (2, self._relabel_namespace),
            "reload": (1.2, self._reload),
            "wait": (6, self._wait),
        }

        def network_step(name: str) -> Callable[[], str | None]:
            return lambda: NETWORK_STEPS[name][1](self, Step(name, random.randrange(1000), random.randrange(1000)))

        steps = [(name, step) for name, (_, step) in own.items()]
        steps += [(name, network_step(name)) for name in NETWORK_STEPS]
        weights = [weight for weight, _ in own.values()]
        weights += [weight * (1.5 if name == "deliver" else 1) for name, (weight, _) in NETWORK_STEPS.items()]
        return steps, list(accumulate(weights))

    def _schedule_pod(self) -> str | None:
        """Filter, prioritize, and nearly always bind to the best node."""
        pod = self._choose_pod(
            lambda pod: not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
        if pod is None:
            return None
        passed = self._filter(pod)
        if not passed:
            return f"{_name(pod)}: no node"
        best = self._prioritize(pod, passed)
        roll = self.random.random()
        if roll < 0.08:
            return f"{_name(pod)}: {passed}, no bind"
        node = best if roll < 0.93 else self.random.choice(self._list_node_names() or [best])
        return f"{_name(pod)}: {passed}; {self._bind(pod, node)}"

    def _filter_queue(self) -> str | None:
        """As the scheduler asks again and again about pods that fit nowhere, all of them after every event."""
        pods = [pod for pod in self._pods() if not pod["spec"].get("nodeName")]
        said = []
        for pod in self.random.sample(pods, min(len(pods), 3)):
            passed = self._filter(pod)
            if len(passed) > 1 and self.random.random() < 0.7:
                self._prioritize(pod, passed)
            said.append(f"{_name(pod)}: {passed}")
        return "; ".join(said) or None

    def _bind_again(self) -> str | None:
        """A second scheduler, or one that lost the answer: mostly to the same node."""
        if not self._asked:
            return None
        uid, node = self.random.choice(list(self._asked)[-8:])
        pod = self._find_pod(uid)
        if pod is None:
            return None
        if self.random.random() < 0.2:
            node = self.random.choice([*self._list_node_names(), node])
        return self._bind(pod, node)

    def _storm(self) -> str | None:
        pod = self._choose_pod(lambda pod: not pod["spec"].get("nodeName"))
        names = self._list_node_names()
        if pod is None or not names:
            return None
        first = self.random.choice(names)
        return "; ".join(self._bind(pod, node) for node in (first, first, self.random.choice(names)))

    def _create_pod(self) -> str | None:
        if len(self._pods()) >= MOST_PODS:
            return None
        self._made += 1
        pod = draw_pod(self.random, f"p{self._made}")
        made = self.store.create(POD, pod["metadata"]["namespace"], pod)
        first = f"; asked at once: {self._filter(made)}" if self.random.random() < 0.15 else ""
        return f"{_name(made)} {json.dumps(pod)}{first}"

    def _delete_pod(self) -> str | None:
        """With grace a bound pod is terminating first."""
        pod = self._choose_pod(lambda _: True)
        if pod is None:
            return None
        has_grace = self.random.random() < 0.5 and "deletionTimestamp" not in pod["metadata"]
        self.store.delete(POD, *_address(pod), {} if has_grace else {"gracePeriodSeconds": 0})
        return f"{_name(pod)} {'with grace' if has_grace else 'at once'}"

    def _finish_pod(self) -> str | None:
        pod = self._choose_pod(lambda pod: bool(pod["spec"].get("nodeName")))
        return None if pod is None else self._patch_pod(pod, {"status": {"phase": "Succeeded"}}, is_status=True)

    def _relabel_pod(self) -> str | None:
        pod = self._choose_pod(lambda _: True)
        if pod is None:
            return None
        return self._patch_pod(pod, {"metadata": {"labels": {"team": self.random.choice(("x", "y", None))}}})

    def _nominate_pod(self) -> str | None:
        """Others were evicted for it; sometimes it is nominated elsewhere, or nowhere."""
        pod = self._choose_pod(lambda pod: not pod["spec"].get("nodeName"))
        names = self._list_node_names()
        if pod is None or not names:
            return None
        node = self.random.choice([*names, None])
        return self._patch_pod(pod, {"status": {"nominatedNodeName": node}}, is_status=True)

    def _change_node(self) -> str | None:
        names = self._list_node_names()
        if not names:
            return None
        node = self.store.get(NODE, "", self.random.choice(names))
        patch = change_cards(self.random, node)
        if patch is None:
            return None
        self.store.patch(NODE, "", _name(node), patch, apply_patch=apply_merge_patch, is_status=False)
        return f"{_name(node)} {json.dumps(patch)}"

    def _add_or_remove_node(self) -> str | None:
        names = self._list_node_names()
        if len(names) > 1 and self.random.random() < 0.4:
            name = self.random.choice(names)
            self._gone[name] = self.store.get(NODE, "", name)
            self.store.delete(NODE, "", name, {})
            return f"{name} goes"
        if self._gone:
            name = self.random.choice(list(self._gone))
            node = self._gone.pop(name)
        elif len(names) < MOST_NODES:
            name = f"n{len(names) + len(self._gone)}"
            node = draw_node(self.random, name)
        else:
            return None
        content = {
            "metadata": {key: node["metadata"][key] for key in ("name", "annotations") if key in node["metadata"]}
        }
        self.store.restore(NODE, "", content | {"status": node.get("status") or {}})
        return f"{name} comes"

    def _bind_as_another(self) -> str | None:
        """Another program binds a pod where there is room for sure, with a record of gpushare's, or with none."""
        pod = self._choose_pod(
            lambda pod: not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
        names = self._list_node_names()
        if pod is None or not names or len([each for each in self.network.streams if each.is_open]) < 2:
            return None
        uid = pod["metadata"]["uid"]
        if self._asked.keys() & {(uid, name) for name in names}:
            return None
        node = self.store.get(NODE, "", self.random.choice(names))
        others = [each for each in self._list_possible_holders(_name(node)) if each["metadata"]["uid"] != uid]
        cards = self._judge.count_used(node, others)
        units = _read_units(pod)
        index = next((card.index for card in cards if card.units - card.used >= units), None)
        notes = (
            {} if index is None else {"scheduler.framework.gpushare.allocation": json.dumps({"0": {str(index): units}})}
        )
        if not cards or (index is None and any(card.units - card.used < units for card in cards)):
            return None
        binding = {"metadata": {"name": _name(pod), "annotations": notes}, "target": {"name": _name(node)}}
        self.store.bind(pod["metadata"]["namespace"], _name(pod), binding)
        self._deliver_all()
        return f"{_name(pod)} to {_name(node)} with {notes}"

    def _relabel_namespace(self) -> str:
        name = self.random.choice(NAMESPACES)
        self._namespaces[name] = {"owner": self.random.choice(("x", "y"))}
        for sink in self._namespace_sinks:
            sink.on_changed(_namespace_object(name, self._namespaces[name]))
        return f"{name} {self._namespaces[name]}; {self._filter_queue()}"

    def _reload(self) -> str:
        """Another file is applied, with other steps in between."""
        self._drafted_rules, given = self._draw_placement()
        fields = {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration"}
        settings = ExtenderConfiguration.model_validate(fields | given)
        self._placement = settings.build_placement()
        process = self.process

        async def apply() -> None:
            labels = self._list_namespaces(self._placement.list_namespace_label_keys())
            await process.parts.apply_settings(settings, labels, process.reflectors)

        task = process.loop.create_task(apply())
        between = []
        while not task.done():
            if self.random.random() < 0.5:
                between.append(str(self._step_in_a_reload()))
            process.loop.run_turn()
        if error := task.exception():
            raise WrongAnswerError(f"the reload failed: {error!r}")
        self._rules = self._drafted_rules
        del self._namespace_sinks[:-1]
        return f"{json.dumps(self._rules)} with {between} in between"

    def _step_in_a_reload(self) -> str | None:
        steps = [self._filter_queue, self._relabel_namespace, self._add_or_remove_node, self._change_node]
        for stream in [each for each in self.network.streams if each.is_open]:
            while stream.feed.pending():
                stream.send_change(stream.feed.take(0))
        return self.random.choice(steps)()

    def _wait(self) -> str:
        seconds = self.random.choice((0.05, 0.3, 1.0, 2.1, 3.1))
        self._pass_time(seconds)
        self._send_bookmarks()
        return f"{seconds} s"

    # Calls

    def _filter(self, pod: Object) -> list[str]:
        """The nodes that pass, after they were compared with the judge's."""
        names = self._list_node_names()
        roll = self.random.random()
        if roll < 0.2:
            names = self.random.sample(names, self.random.randint(0, len(names)))
        elif roll < 0.25:
            names = [*names, "unknown"]
        self._check_places()
        wanted = self._judge.judge_pod(self._hear(), pod, names)
        self.calls["filter"] += 1
        body = encode({"Pod": POD.add_type_meta(pod), "NodeNames": names})
        answer = msgspec.json.decode(self.process.verbs.filter(body).body)
        if answer["Error"]:
            if answer["Error"] != f"not ready: {self.process.freshness.find_unready_reason()}":
                raise WrongAnswerError(f"filter of {_name(pod)} says {answer['Error']}")
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
        is_decided = self._settings.decide.default != "prioritize" and len(fits) > 1
        is_right = passed == fits or (is_decided and len(passed) == 1 and passed[0] in fits)
        if not passed:  # then it may be a cached one, whose reasons may be older, but never of another kind
            said |= {name: each for name, each in refused.items() if not each[1] and not said.get(name, each)[1]}
        if not is_right or said != refused:
            raise WrongAnswerError(f"filter of {_name(pod)} says {passed}, {said}; right is {fits}, {refused}")
        return passed

    def _prioritize(self, pod: Object, passed: list[str]) -> str:
        """The best node. Every ranked one fits, and the best has the highest score."""
        self.calls["prioritize"] += 1
        body = encode({"Pod": POD.add_type_meta(pod), "NodeNames": passed})
        ranked = msgspec.json.decode(self.process.verbs.prioritize(body).body)
        hosts = [each["Host"] for each in ranked]
        scores = [each["Score"] for each in ranked]
        if len(set(hosts)) != min(MOST_SCORES, len(passed)) or not set(hosts) <= set(passed):
            raise WrongAnswerError(f"prioritize of {_name(pod)} ranks {hosts} of {passed}")
        if scores[0] != 10 or scores != sorted(scores, reverse=True):
            raise WrongAnswerError(f"prioritize of {_name(pod)} scores {ranked}")
        return str(hosts[0])

    def _bind(self, pod: Object, node: str) -> str:
        """Call it; what it sends at once, and what it refuses at once, is judged."""
        uid = pod["metadata"]["uid"]
        self.calls["bind"] += 1
        self._asked[uid, node] += 1
        known = self.process.ledger.get_pod(uid)
        heard_pod = pod if known is None else self._versions[uid, known.resource_version]
        verdict = self._judge.judge_pod(self._hear(), heard_pod, [node])[node]
        asked = {"PodName": _name(pod), "PodNamespace": pod["metadata"]["namespace"], "PodUID": uid, "Node": node}
        calls = [*self.network.calls]
        call = BindCall(pod, node, self.process.loop.create_task(self.process.verbs.bind(encode(asked))))
        self._binds.append(call)
        self._run_ready()
        if call.task.done() and calls == self.network.calls:
            error = msgspec.json.decode(call.task.result().body)["Error"]
            refused = f"node {node}: {verdict.reason}"
            if error.startswith(f"node {node}: ") and not (verdict.reason and error.startswith(refused)):
                raise WrongAnswerError(f"bind of {_name(pod)} says {error}; right is {refused}")
        return f"bind {_name(pod)} to {node}"

    # Checks

    def _check_sent_binding(self, _process: str, uid: str, node: str, notes: Mapping[str, str]) -> None:
        """The cards of a new Binding fit; one that is sent again keeps its cards."""
        reservation = self.process.ledger.get_reservation(uid, node)
        if reservation is None:
            raise WrongAnswerError(f"a Binding of {uid} to {node} is sent without a place")
        known = self._sent.get((uid, node))
        is_new = known is None or known[0] is not reservation.allocation
        self._sent[uid, node] = reservation.allocation, notes
        if not is_new:
            return
        pod = self._versions[uid, reservation.pod.resource_version]  # its labels may have changed, unheard
        heard = self._hear()  # as it was before this place was taken
        heard.places = [place for place in heard.places if place.pod["metadata"]["uid"] != uid]
        verdict = self._judge.judge_pod(heard, pod, [node])[node]
        cards = {each["index"] for each in json.loads(notes["vrampack.dev/allocation"])["cards"]}
        if verdict.reason or not cards <= verdict.fitting or len(cards) != len(verdict.cards):
            raise WrongAnswerError(f"a Binding of {_name(pod)} to {node} takes cards {cards}; right is {verdict}")

    def _note_written(self, _process: str, pod: Object) -> None:
        """No card has more than it has, and the pod is on the node that was asked for."""
        name = pod["spec"]["nodeName"]
        self._written[pod["metadata"]["uid"]] = name
        if name in self._list_node_names():
            node = self.store.get(NODE, "", name)
            for card in self._judge.count_used(node, self._list_live_pods(name)):
                if card.used > card.units:
                    holders = [_name(each) for each in self._list_live_pods(name)]
                    text = f"{card.used} of {card.units} units held on {name} card {card.index} by {holders}"
                    raise WrongAnswerError(f"over-commit by {_name(pod)}: {text}")

    def _check_places(self) -> None:
        """What the extender has bound counts, whatever it was answered and whatever it has heard."""
        ledger = self.process.ledger
        for pod in self._pods():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if node and self._written.get(uid) == node and not _is_finished(pod):
                known = ledger.get_pod(uid)
                if ledger.get_reservation(uid, node) is None and (known is None or known.node_name != node):
                    raise WrongAnswerError(f"{_name(pod)} was bound to {node} and is counted nowhere")

    def _check_answer(self, call: BindCall) -> None:
        if error := call.task.exception():
            raise WrongAnswerError(f"bind of {_name(call.pod)} raised {error!r}")
        said = msgspec.json.decode(call.task.result().body)["Error"]
        uid = call.pod["metadata"]["uid"]
        pod = self._find_pod(uid)
        node = None if pod is None else pod["spec"].get("nodeName")
        self.trace.append(f"{self.seconds:7.2f} answer of bind {_name(call.pod)} to {call.node}: {said or 'bound'}")
        if not said and pod is not None and (node != call.node or self._written.get(uid) != node):
            raise WrongAnswerError(f"bind of {_name(pod)} to {call.node} says yes, the API server shows {node}")
        is_no = said and not said.startswith(OUTCOME_UNKNOWN)
        if is_no and node == call.node and self._written.get(uid) == node and self._asked[uid, call.node] == 1:
            raise WrongAnswerError(f"bind of {call.pod['metadata']['name']} to {node} says {said}, and it is bound")

    def _check_end(self) -> None:
        ledger = self.process.ledger
        if self._binds or self.network.calls or (left := ledger.list_reservations()):
            raise WrongAnswerError(f"left: {self._binds}, {[*map(str, self.network.calls)]}, {left}")
        for pod in self._pods():
            known = ledger.get_pod(pod["metadata"]["uid"])
            if not _is_finished(pod) and (
                known is None or known.resource_version != pod["metadata"]["resourceVersion"]
            ):
                raise WrongAnswerError(f"{_name(pod)} is known as {known}")
        if {node.name for node in ledger.list_nodes()} != set(self._list_node_names()):
            raise WrongAnswerError(f"nodes {[node.name for node in ledger.list_nodes()]} are known")
        for name in self._list_node_names():
            known_node = ledger.get_node(name)
            held = {card.index: card.used_units for card in known_node.cards} if known_node is not None else {}
            for card in self._judge.count_used(self.store.get(NODE, "", name), self._list_live_pods(name)):
                if held.get(card.index) != card.used:
                    raise WrongAnswerError(f"{name} card {card.index} holds {card.used}, the ledger counts {held}")

    # What is there, and what is heard

    def _hear(self) -> HeardCluster:
        ledger = self.process.ledger
        is_new = ledger.placement == self._placement
        places = [
            PendingPlace(
                self._versions[each.pod.uid, each.pod.resource_version],
                each.node_name,
                self._sent[each.pod.uid, each.node_name][1],
            )
            for each in ledger.list_reservations()
            if (each.pod.uid, each.node_name) in self._sent
        ]
        return HeardCluster(
            nodes={name: self._versions[f"node {name}", version] for name, version in self.hosts.versions.items()},
            pods=[self._versions[pod.uid, pod.resource_version] for pod in ledger.list_pods()],
            places=places,
            rules=self._drafted_rules if is_new else self._rules,
            namespaces=self._namespaces,
        )

    def _pods(self) -> list[Object]:
        return list(self.store._objects["pods"].values())

    def _list_node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.store._objects["nodes"].values()]

    def _choose_pod(self, fits: Callable[[Object], bool]) -> Object | None:
        pods = [pod for pod in self._pods() if not _is_finished(pod) and fits(pod)]
        return self.random.choice(pods) if pods else None

    def _find_pod(self, uid: str) -> Object | None:
        return next((pod for pod in self._pods() if pod["metadata"]["uid"] == uid), None)

    def _list_live_pods(self, node: str) -> list[Object]:
        return [pod for pod in self._pods() if pod["spec"].get("nodeName") == node and not _is_finished(pod)]

    def _list_possible_holders(self, node: str) -> list[Object]:
        """Who holds something there, or still may."""
        holders = {pod["metadata"]["uid"]: pod for pod in self._list_live_pods(node)}
        for (uid, name), (_, notes) in self._sent.items():
            pod = self._find_pod(uid)
            if name == node and pod is not None and uid not in holders:
                metadata = pod["metadata"]
                written = {**(metadata.get("annotations") or {}), **notes}
                holders[uid] = {**pod, "metadata": {**metadata, "annotations": written}, "pending": True}
        return list(holders.values())

    def _patch_pod(self, pod: Object, patch: Object, *, is_status: bool = False) -> str:
        self.store.patch(POD, *_address(pod), patch, apply_patch=apply_merge_patch, is_status=is_status)
        return f"{_name(pod)} {json.dumps(patch)}"

    def _draw_placement(self) -> tuple[Object, Object]:
        return draw_placement(self.random)

    def _list_namespaces(self, keys: Iterable[str]) -> NamespaceLabels:
        """A first list of all namespaces, as `NamespaceWatcher` makes it when some selector needs their labels."""
        sink = NamespaceSink(NamespaceLabels(list(keys)), self.process.ledger, self._metrics)
        self._namespace_sinks.append(sink)
        sink.on_list_started("start")
        sink.on_page([_namespace_object(name, labels) for name, labels in self._namespaces.items()])
        sink.on_list_finished()
        return sink.labels

    def _note_change(self) -> None:
        for kind in (POD, NODE):
            for change in self.store.read_changes_since(self.store.version - 1, kind, None):
                metadata = change.item["metadata"]
                uid = metadata["uid"] if kind is POD else f"node {metadata['name']}"
                self._versions[uid, metadata["resourceVersion"]] = change.item

    # Time and the network

    def _pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.seconds += min(seconds, 2.0)
            seconds -= 2.0
            self._run_ready()

    def _run_ready(self) -> None:
        self.process.loop.run_ready()
        if crash := self.process.crashed():
            raise WrongAnswerError(f"the extender ended: {crash}")
        for call in [call for call in self._binds if call.task.done()]:
            self._binds.remove(call)
            self._check_answer(call)

    def _send_bookmarks(self) -> None:
        for stream in self.network.streams:
            if stream.is_open and not stream.feed.pending():
                stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(self.store.version)}})
        self._run_ready()

    def _deliver_all(self) -> None:
        for stream in self.network.streams:
            while stream.is_open and stream.feed.pending():
                stream.send_change(stream.feed.take(0))
        self._run_ready()

    def _answer_all(self) -> None:
        """Until no call is waiting."""
        for _ in range(100):
            while self.network.late:
                self.network.late.pop().execute()
            for call in tuple(self.network.calls):
                call.answer()
            self._deliver_all()
            if not self.network.calls and not any(stream.feed.pending() for stream in self.network.streams):
                return
        raise WrongAnswerError("calls without end")

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    def _new_uid(self) -> str:
        self._uids += 1
        return f"u{self._uids}"


@contextmanager
def open_world(seed: int, metrics: ExtenderMetrics) -> Iterator[BruteForceWorld]:
    worlds: list[BruteForceWorld] = []
    with reflectors_without_chance(lambda: worlds[0].seconds if worlds else 0.0):
        worlds.append(BruteForceWorld(seed, metrics))
        try:
            yield worlds[0]
        finally:
            worlds[0].close()


def run_world(seed: int, metrics: ExtenderMetrics, calls: int = CALLS_PER_WORLD) -> BruteForceWorld:
    """Until so many calls were made. Raises `WrongAnswerError` with the last steps."""
    with open_world(seed, metrics) as world:
        try:
            while world.calls.total() < calls:
                world.take_step()
            world.settle()
        except Exception as error:  # whatever a verb raises is a wrong answer, too
            what = str(error) if isinstance(error, WrongAnswerError) else repr(error)
            raise WrongAnswerError("\n".join((f"seed {seed}: {what}", *world.trace[-TRACED_STEPS:]))) from error
    return world


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _address(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _read_units(pod: Object) -> int:
    """All that it asks."""
    limits: Mapping[str, Any] = pod["spec"]["containers"][0]["resources"]["limits"]
    return int(limits["aliyun.com/gpu-mem"])


def _namespace_object(name: str, labels: Object) -> NamespaceObject:
    return NamespaceObject(ObjectMeta(name=name, labels=dict(labels)))
