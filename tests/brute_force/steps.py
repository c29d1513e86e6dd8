"""What may happen next in a world: what schedulers and users do, faults of the network, and time."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate

from extender.settings import ExtenderConfiguration
from tests.brute_force.checks import JudgedVerbs
from tests.brute_force.clusters import MODELS, change_cards, draw_node, draw_placement, draw_pod
from tests.brute_force.world import (
    MOST_NODES,
    BruteForceWorld,
    WrongAnswerError,
    build_namespace,
    get_address,
    get_name,
    read_units,
)
from tests.simulation.network_steps import NETWORK_STEPS
from tests.simulation.step import Step
from tests.support.ruled_clusters import NAMESPACES
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

MOST_PODS = 16


class DrawnSteps:
    """The steps of one world; its seed draws one after the other."""

    def __init__(self, world: BruteForceWorld, verbs: JudgedVerbs) -> None:
        self._world = world
        self._random = world.random
        self._store = world.store
        self._verbs = verbs
        self._made = 0
        """How many pods were created."""
        self._gone: dict[str, Object] = {}
        """Nodes that were removed and may come back."""
        self._step_table = self._list_steps()

    def take_step(self) -> None:
        steps, weights = self._step_table
        name, step = self._random.choices(steps, cum_weights=weights)[0]
        done = step()
        if done is not None:
            self._world.trace.append(f"{self._world.seconds:7.2f} {name} {done}")
            self._world.run_ready()

    def _list_steps(self) -> tuple[list[tuple[str, Callable[[], str | None]]], list[float]]:
        random = self._random
        own: dict[str, tuple[float, Callable[[], str | None]]] = {
            "schedule": (40, self._schedule_pod),
            "filter": (12, self._filter_queue),
            "bind again": (7, self._bind_again),
            "storm": (2, self._storm),
            "create": (12, self._create_pod),
            "delete": (4, self._delete_pod),
            "finish": (2, self._finish_pod),
            "relabel": (4, self._relabel_pod),
            "nominate": (5, self._nominate_pod),
            "change node": (3, self._change_node),
            "node": (1.5, self._add_or_remove_node),
            "foreign": (2, self._bind_as_another),
            "namespace": (2, self._relabel_namespace),
            "reload": (1.2, self._reload),
            "wait": (6, self._wait),
        }

        def network_step(name: str) -> Callable[[], str | None]:
            return lambda: NETWORK_STEPS[name][1](
                self._world, Step(name, random.randrange(1000), random.randrange(1000))
            )

        steps = [(name, step) for name, (_, step) in own.items()]
        steps += [(name, network_step(name)) for name in NETWORK_STEPS]
        weights = [weight for weight, _ in own.values()]
        weights += [weight * (1.5 if name == "deliver" else 1) for name, (weight, _) in NETWORK_STEPS.items()]
        return steps, list(accumulate(weights))

    def _schedule_pod(self) -> str | None:
        """Filter, prioritize, and nearly always bind to the best node."""
        pod = self._world.choose_pod(
            lambda pod: not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
        return None if pod is None else self._schedule(pod)

    def _schedule(self, pod: Object) -> str:
        passed = self._verbs.filter(pod)
        if not passed:
            return f"{get_name(pod)}: no node"
        best = self._verbs.prioritize(pod, passed)
        roll = self._random.random()
        if roll < 0.08:
            return f"{get_name(pod)}: {passed}, no bind"
        node = best if roll < 0.93 else self._random.choice(self._world.list_node_names() or [best])
        return f"{get_name(pod)}: {passed}; {self._verbs.bind(pod, node)}"

    def _filter_queue(self) -> str | None:
        """As the scheduler asks again and again about pods that fit nowhere, all of them after every event."""
        pods = [pod for pod in self._world.list_pods() if not pod["spec"].get("nodeName")]
        said = []
        for pod in self._random.sample(pods, min(len(pods), 3)):
            passed = self._verbs.filter(pod)
            if len(passed) > 1 and self._random.random() < 0.7:
                self._verbs.prioritize(pod, passed)
            said.append(f"{get_name(pod)}: {passed}")
        return "; ".join(said) or None

    def _bind_again(self) -> str | None:
        """A second scheduler, or one that lost the answer: mostly to the same node."""
        if not self._verbs.asked:
            return None
        uid, node = self._random.choice(list(self._verbs.asked)[-8:])
        pod = self._world.find_pod(uid)
        if pod is None:
            return None
        if self._random.random() < 0.2:
            node = self._random.choice([*self._world.list_node_names(), node])
        return self._verbs.bind(pod, node)

    def _storm(self) -> str | None:
        pod = self._world.choose_pod(lambda pod: not pod["spec"].get("nodeName"))
        names = self._world.list_node_names()
        if pod is None or not names:
            return None
        first = self._random.choice(names)
        return "; ".join(self._verbs.bind(pod, node) for node in (first, first, self._random.choice(names)))

    def _create_pod(self) -> str | None:
        if len(self._world.list_pods()) >= MOST_PODS:
            return None
        self._made += 1
        pod = draw_pod(self._random, f"p{self._made}")
        made = self._store.create(POD, pod["metadata"]["namespace"], pod)
        first = f"; at once {self._schedule(made)}" if self._random.random() < 0.25 else ""
        return f"{get_name(made)} {json.dumps(pod)}{first}"

    def _delete_pod(self) -> str | None:
        """With grace a bound pod is terminating first."""
        pod = self._world.choose_pod(lambda _: True)
        if pod is None:
            return None
        has_grace = self._random.random() < 0.5 and "deletionTimestamp" not in pod["metadata"]
        self._store.delete(POD, *get_address(pod), {} if has_grace else {"gracePeriodSeconds": 0})
        return f"{get_name(pod)} {'with grace' if has_grace else 'at once'}"

    def _finish_pod(self) -> str | None:
        pod = self._world.choose_pod(lambda pod: bool(pod["spec"].get("nodeName")))
        return None if pod is None else self._world.patch_pod(pod, {"status": {"phase": "Succeeded"}}, is_status=True)

    def _relabel_pod(self) -> str | None:
        """Often one whose Binding is on its way: it is for another version then."""
        binding = {call.pod["metadata"]["uid"] for call in self._verbs.binds}
        is_binding = self._random.random() < 0.7
        pod = self._world.choose_pod(lambda pod: not is_binding or pod["metadata"]["uid"] in binding)
        if pod is None:
            return None
        team, tier = self._random.choice(("x", "y", None)), self._random.choice(("gold", "tin", None))
        model = self._random.choice((*MODELS, None, None))
        notes = {"vrampack.dev/card-model": model}
        return self._world.patch_pod(pod, {"metadata": {"labels": {"team": team, "tier": tier}, "annotations": notes}})

    def _nominate_pod(self) -> str | None:
        """Others were evicted for it; sometimes it is nominated elsewhere, or nowhere."""
        pod = self._world.choose_pod(lambda pod: not pod["spec"].get("nodeName"))
        names = self._world.list_node_names()
        if pod is None or not names:
            return None
        node = self._random.choice([*names, None])
        return self._world.patch_pod(pod, {"status": {"nominatedNodeName": node}}, is_status=True)

    def _change_node(self) -> str | None:
        names = self._world.list_node_names()
        if not names:
            return None
        node = self._store.get(NODE, "", self._random.choice(names))
        patch = change_cards(self._random, node)
        if patch is None:
            return None
        self._store.patch(NODE, "", get_name(node), patch, apply_patch=apply_merge_patch, is_status=False)
        return f"{get_name(node)} {json.dumps(patch)}"

    def _add_or_remove_node(self) -> str | None:
        names = self._world.list_node_names()
        if len(names) > 1 and self._random.random() < 0.4:
            name = self._random.choice(names)
            self._gone[name] = self._store.get(NODE, "", name)
            self._store.delete(NODE, "", name, {})
            return f"{name} goes"
        if self._gone:
            name = self._random.choice(list(self._gone))
            node = self._gone.pop(name)
        elif len(names) < MOST_NODES:
            name = f"n{len(names) + len(self._gone)}"
            node = draw_node(self._random, name)
        else:
            return None
        content = {
            "metadata": {key: node["metadata"][key] for key in ("name", "annotations") if key in node["metadata"]}
        }
        self._store.restore(NODE, "", content | {"status": node.get("status") or {}})
        return f"{name} comes"

    def _bind_as_another(self) -> str | None:
        """Another program binds a pod where there is room for sure, with a record of gpushare's, or with none."""
        pod = self._world.choose_pod(
            lambda pod: not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
        names = self._world.list_node_names()
        if pod is None or not names or len([each for each in self._world.network.streams if each.is_open]) < 2:
            return None
        uid = pod["metadata"]["uid"]
        if self._verbs.asked.keys() & {(uid, name) for name in names}:
            return None
        node = self._store.get(NODE, "", self._random.choice(names))
        others = [each for each in self._verbs.list_possible_holders(get_name(node)) if each["metadata"]["uid"] != uid]
        cards = self._verbs.judge.count_used(node, others)
        units = read_units(pod)
        index = next((card.index for card in cards if card.units - card.used >= units), None)
        notes = (
            {} if index is None else {"scheduler.framework.gpushare.allocation": json.dumps({"0": {str(index): units}})}
        )
        if not cards or (index is None and any(card.units - card.used < units for card in cards)):
            return None
        binding = {"metadata": {"name": get_name(pod), "annotations": notes}, "target": {"name": get_name(node)}}
        self._store.bind(pod["metadata"]["namespace"], get_name(pod), binding)
        self._world.deliver_all()
        return f"{get_name(pod)} to {get_name(node)} with {notes}"

    def _relabel_namespace(self) -> str:
        name = self._random.choice(NAMESPACES)
        self._world.namespaces[name] = {"owner": self._random.choice(("x", "y"))}
        for sink in self._world.namespace_sinks:
            sink.on_changed(build_namespace(name, self._world.namespaces[name]))
        return f"{name} {self._world.namespaces[name]}; {self._filter_queue()}"

    def _reload(self) -> str:
        """Another file is applied, with other steps in between."""
        world, process = self._world, self._world.process
        world.drafted_rules, given = draw_placement(self._random)
        fields = {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration"}
        settings = ExtenderConfiguration.model_validate(fields | given)
        world.placement = settings.build_placement()

        async def apply() -> None:
            labels = world.list_namespaces(world.placement.list_namespace_label_keys())
            await process.parts.apply_settings(settings, labels, process.reflectors)

        task = process.loop.create_task(apply())
        between = []
        while not task.done():
            if self._random.random() < 0.5:
                between.append(str(self._step_in_a_reload()))
            process.loop.run_turn()
        if error := task.exception():
            raise WrongAnswerError(f"the reload failed: {error!r}")
        world.rules = world.drafted_rules
        del world.namespace_sinks[:-1]
        return f"{json.dumps(world.rules)} with {between} in between"

    def _step_in_a_reload(self) -> str | None:
        steps = [self._filter_queue, self._relabel_namespace, self._add_or_remove_node, self._change_node]
        for stream in [each for each in self._world.network.streams if each.is_open]:
            while stream.feed.pending():
                stream.send_change(stream.feed.take(0))
        return self._random.choice(steps)()

    def _wait(self) -> str:
        seconds = self._random.choice((0.05, 0.3, 1.0, 2.1, 3.1))
        self._world.pass_time(seconds)
        self._world.send_bookmarks()
        return f"{seconds} s"
