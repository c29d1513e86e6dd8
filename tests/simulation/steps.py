"""What may happen next in a cluster that an extender schedules.

A choice picks among what is there at that moment; where nothing is there, the step does nothing and returns None.
Otherwise it returns what it did, for the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.simulation.network_steps import NETWORK_STEPS
from tests.simulation.objects import FOREIGN, LEGACY, NODES, SHAPES, published
from tests.simulation.step import Step, choose
from tests.simulation.world import NAMESPACE, Decided, Mode, SimulationWorld
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

MOST_PODS = 12
WAITS = (0.05, 0.3, 1.0, 1.1, 2.0, 3.1)
"""Seconds: less and more than a back-off, a look-up, a bind's deadline."""


def take_step(world: SimulationWorld, step: Step) -> str | None:
    """Do it, and return what was done."""
    return STEPS[step.name][1](world, step)


def some_steps(seed: int, mode: Mode, count: int) -> list[Step]:
    dice = Random(seed)
    names = [name for name in STEPS if mode == "hostile" or name not in HOSTILE]
    weights = [STEPS[name][0] for name in names]
    return [Step(name, dice.randrange(1000), dice.randrange(1000)) for name in dice.choices(names, weights, k=count)]


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


# The cluster


def _create(world: SimulationWorld, step: Step) -> str | None:
    if len(world.pods()) >= MOST_PODS:
        return None
    world.chosen = step.target or world.new_name()
    world.create_pod(world.chosen, step.how)
    return f"create {world.chosen} of shape {step.how % SHAPES}"


def _delete(world: SimulationWorld, step: Step) -> str | None:
    """With grace a bound pod is leaving first; a second delete, or one without grace, takes it away."""
    pod = choose(world.pods(), world, step)
    if pod is None:
        return None
    options = {"gracePeriodSeconds": 0} if step.how % 2 or "deletionTimestamp" in pod["metadata"] else {}
    world.store.delete(POD, NAMESPACE, _name(pod), options)
    return f"delete {_name(pod)} {options or 'with grace'}"


def _recreate(world: SimulationWorld, step: Step) -> str | None:
    """Another pod under the same name, as a StatefulSet makes it."""
    pod = choose(world.pods(), world, step)
    if pod is None:
        return None
    world.store.delete(POD, NAMESPACE, _name(pod), {"gracePeriodSeconds": 0})
    world.create_pod(_name(pod), step.how)
    return f"recreate {_name(pod)} of shape {step.how % SHAPES}"


def _finish(world: SimulationWorld, step: Step) -> str | None:
    running = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
    pod = choose(running, world, step)
    if pod is None:
        return None
    phase = {"status": {"phase": "Succeeded" if step.how % 2 else "Failed"}}
    world.store.patch(POD, NAMESPACE, _name(pod), phase, apply_patch=apply_merge_patch, is_status=True)
    return f"finish {_name(pod)}"


def _annotate(world: SimulationWorld, name: str, notes: Mapping[str, str | None]) -> None:
    patch: Object = {"metadata": {"annotations": dict(notes)}}
    world.store.patch(NODE, "", name, patch, apply_patch=apply_merge_patch, is_status=False)


def _health(world: SimulationWorld, step: Step) -> str | None:
    name = choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    is_sick = bool(step.how % 2)
    _annotate(world, name, {"vrampack.dev/cards": published(name, NODES[name], sick=is_sick)})
    return f"first card of {name} is {'sick' if is_sick else 'well'}"


def _cordon(world: SimulationWorld, step: Step) -> str | None:
    name = choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    cordoned = f"GPU-{name}-0" if step.how % 2 else None
    _annotate(world, name, {"vrampack.dev/cordoned-cards": cordoned})
    return f"cordoned on {name}: {cordoned}"


def _shrink(world: SimulationWorld, step: Step) -> str | None:
    """Its cards become fewer or more."""
    name = choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    units = ((15,), (8, 15), (16, 8), (8,))[step.how % 4]
    _annotate(world, name, {"vrampack.dev/cards": published(name, units)})
    return f"cards of {name} are {units}"


def _node_names(world: SimulationWorld) -> list[str]:
    return [str(node["metadata"]["name"]) for node in world.nodes()]


def _node_gone(world: SimulationWorld, step: Step) -> str | None:
    name = choose(_node_names(world), world, step)
    if name is None:
        return None
    world.store.delete(NODE, "", name, {})
    return f"delete node {name}"


def _node_back(world: SimulationWorld, step: Step) -> str | None:
    name = choose([name for name in NODES if name not in _node_names(world)], world, step)
    if name is None:
        return None
    world.add_node(name)
    return f"add node {name}"


def _foreign_bind(world: SimulationWorld, step: Step) -> str | None:
    pod = choose([pod for pod in world.pods() if not pod["spec"].get("nodeName")], world, step)
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return None
    node = list(NODES)[step.how % len(NODES)]
    notes = FOREIGN[step.how // 7 % len(FOREIGN)]
    world.spoiled.add(pod["metadata"]["uid"])
    binding = {"metadata": {"name": _name(pod), "annotations": notes}, "target": {"name": node}}
    world.store.bind(NAMESPACE, _name(pod), binding)
    return f"somebody binds {_name(pod)} to {node} with {dict(notes)}"


def _forge(world: SimulationWorld, step: Step) -> str | None:
    pod = choose(world.pods(), world, step)
    if pod is None:
        return None
    notes: Mapping[str, str | None] = FOREIGN[step.how % len(FOREIGN)] or {"vrampack.dev/allocation": None}
    world.spoiled.add(pod["metadata"]["uid"])
    patch = {"metadata": {"annotations": dict(notes)}}
    world.store.patch(POD, NAMESPACE, _name(pod), patch, apply_patch=apply_merge_patch, is_status=False)
    return f"forge on {_name(pod)}: {dict(notes)}"


# The scheduler


def _filter(world: SimulationWorld, step: Step) -> str | None:
    pod = choose(world.pending(), world, step)
    if pod is None:
        return None
    process = list(world.processes.values())[step.how % len(world.processes)]
    ranked, answer = world.filter(process, pod)
    if not ranked:
        return f"{process.name} filter {_name(pod)}: {answer['Error'] or 'no node'}"
    world.attempts += 1
    world.decided.append(Decided(process.name, _name(pod), pod["metadata"]["uid"], ranked[0], world.attempts))
    return f"{process.name} filter {_name(pod)}: {ranked}"


def _bind(world: SimulationWorld, step: Step) -> str | None:
    decided = choose(world.decided, world, step)
    if decided is None:
        return None
    world.decided.remove(decided)
    world.bind(decided.process, decided.pod, decided.uid, decided.node)
    return f"{decided.process} bind {decided.pod} ({decided.uid}) to {decided.node}"


def _give_up(world: SimulationWorld, step: Step) -> str | None:
    """An attempt fails before its bind; the scheduler writes why, or the same as before, which changes nothing."""
    decided = choose(world.decided, world, step)
    if decided is None:
        return None
    world.decided.remove(decided)
    is_there = decided.pod in [_name(pod) for pod in world.pods()]
    if step.how % 3 and is_there:
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": f"{step.how}"}
        status = {"status": {"conditions": [condition]}}
        world.store.patch(POD, NAMESPACE, decided.pod, status, apply_patch=apply_merge_patch, is_status=True)
    return f"the scheduler gives up {decided.pod} on {decided.node} and says {'why' if step.how % 3 else 'nothing'}"


def _rebind(world: SimulationWorld, step: Step) -> str | None:
    """Another scheduler, or the same one after a restart, binds a pod that it knows from before, maybe elsewhere."""
    pod = choose(world.pods(), world, step)
    if pod is None:
        return None
    process = list(world.processes)[step.how % len(world.processes)]
    node = list(NODES)[step.how // 2 % len(NODES)]
    world.bind(process, _name(pod), pod["metadata"]["uid"], node)
    return f"{process} bind again {_name(pod)} to {node}"


def _repeat_bind(world: SimulationWorld, step: Step) -> str | None:
    """A second scheduler, or one that lost the answer, sends the very same bind."""
    call = choose(_list_sent_binds(world), world, step)
    if call is None:
        return None
    world.bind(call.process, call.pod, call.uid, call.node)
    return f"{call.process} bind once more {call.pod} ({call.uid}) to {call.node}"


def _list_sent_binds(world: SimulationWorld) -> list[Decided]:
    """Those that wait for their answer, and the latest that were answered."""
    waiting = [Decided(bind.process, bind.pod, bind.uid, bind.node) for bind in world.binds]
    answered = [line["request"] for line in world.transcript[-4:]]
    name = next(iter(world.processes))
    return [*waiting, *(Decided(name, each["PodName"], each["PodUID"], each["Node"]) for each in answered)]


def _hang_up(world: SimulationWorld, step: Step) -> str | None:
    bind = choose(world.binds, world, step)
    if bind is None:
        return None
    world.hang_up(bind)
    return f"the scheduler gives up bind of {bind.pod} to {bind.node}"


# Time, and the end of processes


def _compact(world: SimulationWorld, step: Step) -> str | None:
    world.compact()
    return "compact"


def _wait(world: SimulationWorld, step: Step) -> str | None:
    seconds = WAITS[step.pick % len(WAITS)]
    world.pass_time(seconds)
    return f"{seconds} s pass"


def _silence(world: SimulationWorld, step: Step) -> str | None:
    """No process hears anything for longer than the ledger may be trusted."""
    for _ in range(5):
        world.pass_time(26.0)
        world.run_ready()
    return "130 s of silence pass"


def _kill(world: SimulationWorld, step: Step) -> str | None:
    name = choose(list(world.processes), world, step)
    if name is None:
        return None
    world.kill(name, lands=bool(step.how % 2))
    return f"{name} is killed and starts again; what it had sent {'is' if step.how % 2 else 'is never'} done"


STEPS: Mapping[str, tuple[float, Callable[[SimulationWorld, Step], str | None]]] = {
    "create": (9, _create),
    "delete": (5, _delete),
    "recreate": (1.5, _recreate),
    "finish": (3, _finish),
    "health": (1, _health),
    "cordon": (0.7, _cordon),
    "node gone": (0.5, _node_gone),
    "node back": (3, _node_back),
    "foreign bind": (3, _foreign_bind),
    "forge": (1.5, _forge),
    "shrink": (0.7, _shrink),
    "filter": (16, _filter),
    "bind": (16, _bind),
    "give up": (3, _give_up),
    "rebind": (3, _rebind),
    "repeat bind": (6, _repeat_bind),
    "hang up": (0.7, _hang_up),
    **NETWORK_STEPS,
    "compact": (0.7, _compact),
    "wait": (13, _wait),
    "silence": (0.1, _silence),
    "kill": (0.6, _kill),
}
"""Weight and what it does."""
HOSTILE = frozenset({"foreign bind", "forge", "shrink"})
"""Only where others than the extender write nodes and records."""
