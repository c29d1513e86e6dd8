"""What may happen next, with its choices as numbers: a run is a list of these, and dropping one leaves a run.

A choice picks among what is there at that moment; where nothing is there, the step does nothing and returns None.
Otherwise it returns what it did, for the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, TypeVar

from tests.simulation.api import Network
from tests.simulation.network import NetworkCall, SimulatedStream, encode_status
from tests.simulation.objects import FOREIGN, LEGACY, NODES, SHAPES, published
from tests.simulation.world import NAMESPACE, Decided, Mode, SimulationWorld
from vrampack.kube.errors import BrokenWatchError
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

MOST_PODS = 12
WAITS = (0.05, 0.3, 1.0, 1.1, 2.0, 3.1)
"""Seconds: less and more than a back-off, a look-up, a bind's deadline."""

NOT_FROM_API_SERVER = (
    (503, b"<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request."),
    (404, b"default backend - 404"),
    (404, b"{}"),
    (200, b"<html><title>Sign in</title>"),
    (200, encode_status(502, "", "the server is gone")),
    (200, b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}'),
)
"""What balancers, ingresses and proxies say in the API server's place: none of it tells whether the call was executed."""
SERVER_ERROR = (500, encode_status(500, "InternalError", "Internal error occurred"))
THROTTLED = (
    (429, encode_status(429, "TooManyRequests", "later")),
    (429, b"Too many requests, please try again later."),
)
REFUSALS = (
    *THROTTLED,
    (403, encode_status(403, "Forbidden", "denied by a webhook")),
    (413, encode_status(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")),
    (401, encode_status(401, "Unauthorized", "Unauthorized")),
)
THROTTLED_SECONDS = (2.0, 5.0, 12.0)

_T = TypeVar("_T")


class NetworkedWorld(Protocol):
    """What the steps of the network act on."""

    store: ObjectStore
    network: Network
    seconds: float
    throttled_until: float
    chosen: str


@dataclass(frozen=True, slots=True)
class Step:
    """`pick` chooses the object, `how` the variant. `target` names the object, once a run has shown what was picked."""

    name: str
    pick: int = 0
    how: int = 0
    target: str = ""

    def take(self, world: SimulationWorld) -> str | None:
        """Do it, and return what was done."""
        return STEPS[self.name][1](world, self)


def some_steps(seed: int, mode: Mode, count: int) -> list[Step]:
    dice = Random(seed)
    names = [name for name in STEPS if mode == "hostile" or name not in HOSTILE]
    weights = [STEPS[name][0] for name in names]
    return [Step(name, dice.randrange(1000), dice.randrange(1000)) for name in dice.choices(names, weights, k=count)]


def _choose(among: Sequence[_T], world: NetworkedWorld, step: Step) -> _T | None:
    """The one that the step means, if it is there; the world notes its name, and which of that name it is."""
    if step.target:
        name, _, place = step.target.partition(" #")
        alike = [each for each in among if _label(each) == name]
        return alike[int(place or 0)] if int(place or 0) < len(alike) else None
    if not among:
        return None
    at = step.pick % len(among)
    name = _label(among[at])
    earlier = sum(_label(each) == name for each in among[:at])
    world.chosen = f"{name} #{earlier}" if earlier else name
    return among[at]


def _label(item: object) -> str:
    if isinstance(item, dict):
        return str(item["metadata"]["name"])
    return " ".join(item) if isinstance(item, tuple) else str(item)


def resolved(step: Step, target: str) -> Step:
    """The same step by name, so that it means the same when others are left out."""
    return replace(step, target=step.target or target)


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
    pod = _choose(world.pods(), world, step)
    if pod is None:
        return None
    options = {"gracePeriodSeconds": 0} if step.how % 2 or "deletionTimestamp" in pod["metadata"] else {}
    world.store.delete(POD, NAMESPACE, _name(pod), options)
    return f"delete {_name(pod)} {options or 'with grace'}"


def _recreate(world: SimulationWorld, step: Step) -> str | None:
    """Another pod under the same name, as a StatefulSet makes it."""
    pod = _choose(world.pods(), world, step)
    if pod is None:
        return None
    world.store.delete(POD, NAMESPACE, _name(pod), {"gracePeriodSeconds": 0})
    world.create_pod(_name(pod), step.how)
    return f"recreate {_name(pod)} of shape {step.how % SHAPES}"


def _finish(world: SimulationWorld, step: Step) -> str | None:
    running = [pod for pod in world.pods() if pod["spec"].get("nodeName")]
    pod = _choose(running, world, step)
    if pod is None:
        return None
    phase = {"status": {"phase": "Succeeded" if step.how % 2 else "Failed"}}
    world.store.patch(POD, NAMESPACE, _name(pod), phase, apply_patch=apply_merge_patch, is_status=True)
    return f"finish {_name(pod)}"


def _annotate(world: SimulationWorld, name: str, notes: Mapping[str, str | None]) -> None:
    patch: Object = {"metadata": {"annotations": dict(notes)}}
    world.store.patch(NODE, "", name, patch, apply_patch=apply_merge_patch, is_status=False)


def _health(world: SimulationWorld, step: Step) -> str | None:
    name = _choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    is_sick = bool(step.how % 2)
    _annotate(world, name, {"vrampack.dev/cards": published(name, NODES[name], sick=is_sick)})
    return f"first card of {name} is {'sick' if is_sick else 'well'}"


def _cordon(world: SimulationWorld, step: Step) -> str | None:
    name = _choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    cordoned = f"GPU-{name}-0" if step.how % 2 else None
    _annotate(world, name, {"vrampack.dev/cordoned-cards": cordoned})
    return f"cordoned on {name}: {cordoned}"


def _shrink(world: SimulationWorld, step: Step) -> str | None:
    """Its cards become fewer or more."""
    name = _choose([n for n in _node_names(world) if n != LEGACY], world, step)
    if name is None:
        return None
    units = ((15,), (8, 15), (16, 8), (8,))[step.how % 4]
    _annotate(world, name, {"vrampack.dev/cards": published(name, units)})
    return f"cards of {name} are {units}"


def _node_names(world: SimulationWorld) -> list[str]:
    return [str(node["metadata"]["name"]) for node in world.nodes()]


def _node_gone(world: SimulationWorld, step: Step) -> str | None:
    name = _choose(_node_names(world), world, step)
    if name is None:
        return None
    world.store.delete(NODE, "", name, {})
    return f"delete node {name}"


def _node_back(world: SimulationWorld, step: Step) -> str | None:
    name = _choose([name for name in NODES if name not in _node_names(world)], world, step)
    if name is None:
        return None
    world.add_node(name)
    return f"add node {name}"


def _foreign_bind(world: SimulationWorld, step: Step) -> str | None:
    pod = _choose([pod for pod in world.pods() if not pod["spec"].get("nodeName")], world, step)
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return None
    node = list(NODES)[step.how % len(NODES)]
    notes = FOREIGN[step.how // 7 % len(FOREIGN)]
    world.spoiled.add(pod["metadata"]["uid"])
    binding = {"metadata": {"name": _name(pod), "annotations": notes}, "target": {"name": node}}
    world.store.bind(NAMESPACE, _name(pod), binding)
    return f"somebody binds {_name(pod)} to {node} with {dict(notes)}"


def _forge(world: SimulationWorld, step: Step) -> str | None:
    pod = _choose(world.pods(), world, step)
    if pod is None:
        return None
    notes: Mapping[str, str | None] = FOREIGN[step.how % len(FOREIGN)] or {"vrampack.dev/allocation": None}
    world.spoiled.add(pod["metadata"]["uid"])
    patch = {"metadata": {"annotations": dict(notes)}}
    world.store.patch(POD, NAMESPACE, _name(pod), patch, apply_patch=apply_merge_patch, is_status=False)
    return f"forge on {_name(pod)}: {dict(notes)}"


# The scheduler


def _filter(world: SimulationWorld, step: Step) -> str | None:
    pod = _choose(world.pending(), world, step)
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
    decided = _choose(world.decided, world, step)
    if decided is None:
        return None
    world.decided.remove(decided)
    world.bind(decided.process, decided.pod, decided.uid, decided.node)
    return f"{decided.process} bind {decided.pod} ({decided.uid}) to {decided.node}"


def _give_up(world: SimulationWorld, step: Step) -> str | None:
    """An attempt fails before its bind; the scheduler writes why, or the same as before, which changes nothing."""
    decided = _choose(world.decided, world, step)
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
    pod = _choose(world.pods(), world, step)
    if pod is None:
        return None
    process = list(world.processes)[step.how % len(world.processes)]
    node = list(NODES)[step.how // 2 % len(NODES)]
    world.bind(process, _name(pod), pod["metadata"]["uid"], node)
    return f"{process} bind again {_name(pod)} to {node}"


def _repeat_bind(world: SimulationWorld, step: Step) -> str | None:
    """A second scheduler, or one that lost the answer, sends the very same bind."""
    call = _choose(_list_sent_binds(world), world, step)
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
    bind = _choose(world.binds, world, step)
    if bind is None:
        return None
    world.hang_up(bind)
    return f"the scheduler gives up bind of {bind.pod} to {bind.node}"


# The network


def _answer(world: NetworkedWorld, step: Step) -> str | None:
    call = _choose(world.network.calls, world, step)
    if call is None:
        return None
    fate, variant = step.how % 100, step.how // 100
    if world.seconds < world.throttled_until and not call.is_executed and fate < 90:
        return _reply_definitely(call, THROTTLED[variant % len(THROTTLED)])
    if fate < 64 or (call.is_executed and fate < 85):
        call.answer()
        return f"{call}: {call.refusal or 'done'}"
    if fate < 83:
        call.execute()
        return f"{call}: done, the answer is {'on its way' if fate < 76 else _lose_answer(world, call, variant)}"
    if fate < 90:
        return f"{call}: the answer is {_lose_answer(world, call, variant)}, it may still be done"
    return None if call.is_executed else _refuse(call, fate, variant)


def _lose_answer(world: NetworkedWorld, call: NetworkCall, variant: int) -> str:
    """The line is cut, or a program in between answers in the API server's place."""
    if variant < len(NOT_FROM_API_SERVER):
        call.reply(*NOT_FROM_API_SERVER[variant])
        return f"replaced by {NOT_FROM_API_SERVER[variant]}"
    world.network.give_up(call, "cut")
    return "lost"


def _reply_definitely(call: NetworkCall, said: tuple[int, bytes]) -> str:
    """What was refused so is never done."""
    call.is_executed = True
    call.reply(*said)
    return f"{call}: {said[0]} {said[1].decode()}"


def _refuse(call: NetworkCall, fate: int, variant: int) -> str:
    """Of a Binding, a conflict may hide a time-out of etcd."""
    if fate >= 98 and call.verb in ("list", "watch"):
        return _reply_definitely(call, (410, encode_status(410, "Expired", "too old")))
    if fate >= 96 and call.verb == "bind":
        call.reply(409, encode_status(409, "Conflict", "etcdserver: request timed out"))
        return f"{call}: 409 Conflict: etcdserver: request timed out, and it may still be done"
    refusals = REFUSALS if call.verb == "bind" else THROTTLED
    return _reply_definitely(call, refusals[variant % len(refusals)] if fate >= 93 else SERVER_ERROR)


def _land(world: NetworkedWorld, step: Step) -> str | None:
    call = _choose(world.network.late, world, step)
    if call is None:
        return None
    world.network.late.remove(call)
    if step.how % 4 == 0:
        return f"{call}: is never done"
    call.execute()
    return f"{call}: done late ({call.refusal or 'written'})"


def _open_streams(world: NetworkedWorld) -> list[SimulatedStream]:
    return [stream for stream in world.network.streams if stream.is_open]


def _deliver(world: NetworkedWorld, step: Step) -> str | None:
    if world.seconds < world.throttled_until:
        return None
    waiting = [stream for stream in _open_streams(world) if stream.feed.pending()]
    stream = _choose(waiting, world, step)
    if stream is None:
        return None
    told = []
    for _ in range((1, 1, 2, 5)[step.how % 4]):
        if stream.feed.pending():
            change = stream.feed.take(step.how % len(stream.feed.pending()))
            stream.send_change(change)
            told.append(f"{change.change_type} {change.item['metadata']['name']} at {change.version}")
    return f"{stream.process} hears {', '.join(told)}"


def _tell_again(world: NetworkedWorld, step: Step) -> str | None:
    stream = _choose([stream for stream in _open_streams(world) if stream.feed.last], world, step)
    if stream is None or stream.feed.last is None:
        return None
    stream.send_change(stream.feed.last)
    return f"{stream.process} hears again of {stream.feed.last.item['metadata']['name']}"


def _bookmark(world: NetworkedWorld, step: Step) -> str | None:
    stream = _choose([stream for stream in _open_streams(world) if not stream.feed.pending()], world, step)
    if stream is None:
        return None
    stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(world.store.version)}})
    return f"{stream.process} hears a bookmark of {stream.resource}"


def _break(world: NetworkedWorld, step: Step) -> str | None:
    """A watch ends: by the server, cut, cut in the middle of a line, or with an error in the stream."""
    stream = _choose(_open_streams(world), world, step)
    if stream is None:
        return None
    kind = ("ended", "cut", "half", "410", "410", "500")[step.how % 6]
    if kind == "ended":
        stream.end()
    elif kind == "half" and stream.feed.pending():
        stream.send_half(stream.feed.pending()[0])
    elif kind in ("410", "500"):
        stream.send("ERROR", {"code": int(kind), "reason": "Expired", "message": "too old resource version"})
    else:
        stream.fail(BrokenWatchError("cut"))
    return f"{stream.process} watch of {stream.resource}: {kind}"


def _throttle(world: NetworkedWorld, step: Step) -> str | None:
    """The API server is too busy: it refuses what it can, and the watches are late."""
    seconds = THROTTLED_SECONDS[step.how % len(THROTTLED_SECONDS)]
    world.throttled_until = world.seconds + seconds
    return f"the API server is too busy for {seconds} s"


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
    name = _choose(list(world.processes), world, step)
    if name is None:
        return None
    world.kill(name, lands=bool(step.how % 2))
    return f"{name} is killed and starts again; what it had sent {'is' if step.how % 2 else 'is never'} done"


NETWORK_STEPS: Mapping[str, tuple[float, Callable[[NetworkedWorld, Step], str | None]]] = {
    "answer": (40, _answer),
    "land": (4, _land),
    "deliver": (16, _deliver),
    "tell again": (1.5, _tell_again),
    "bookmark": (1, _bookmark),
    "break": (3, _break),
    "throttle": (1.5, _throttle),
}
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
