"""What may happen between an extender and its API server: answers that come, late or never, and watches that break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tests.simulation.api import Network
from tests.simulation.network import NetworkCall, SimulatedStream, encode_status
from tests.simulation.step import Step, choose
from vrampack.kube.errors import BrokenWatchError
from vrampack.simulator.object_store import ObjectStore

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


class NetworkedWorld(Protocol):
    """What the steps of the network act on."""

    store: ObjectStore
    network: Network
    seconds: float
    throttled_until: float
    chosen: str


def _answer(world: NetworkedWorld, step: Step) -> str | None:
    call = choose(world.network.calls, world, step)
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
    call = choose(world.network.late, world, step)
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
    stream = choose(waiting, world, step)
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
    stream = choose([stream for stream in _open_streams(world) if stream.feed.last], world, step)
    if stream is None or stream.feed.last is None:
        return None
    stream.send_change(stream.feed.last)
    return f"{stream.process} hears again of {stream.feed.last.item['metadata']['name']}"


def _bookmark(world: NetworkedWorld, step: Step) -> str | None:
    stream = choose([stream for stream in _open_streams(world) if not stream.feed.pending()], world, step)
    if stream is None:
        return None
    stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(world.store.version)}})
    return f"{stream.process} hears a bookmark of {stream.resource}"


def _break(world: NetworkedWorld, step: Step) -> str | None:
    """A watch ends: by the server, cut, cut in the middle of a line, or with an error in the stream."""
    stream = choose(_open_streams(world), world, step)
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


NETWORK_STEPS: Mapping[str, tuple[float, Callable[[NetworkedWorld, Step], str | None]]] = {
    "answer": (40, _answer),
    "land": (4, _land),
    "deliver": (16, _deliver),
    "tell again": (1.5, _tell_again),
    "bookmark": (1, _bookmark),
    "break": (3, _break),
    "throttle": (1.5, _throttle),
}
