"""The whole simulated cluster: one store, one network, one or two extenders, one scheduler, one clock.

    scheduler --bytes--> extender (the real one) --calls--> network --> store
                             ^                                            |
                             '------------- watch events <----------------'

Its methods are what steps do. None of them chooses anything: choices are in the steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest

from extender.metrics import ExtenderMetrics
from extender.settings import ExtenderConfiguration
from extender.wire.codec import VerbResponse
from tests.simulation.api import Network
from tests.simulation.network import encode
from tests.simulation.objects import NODES, a_node, a_pod
from tests.simulation.process import SimulatedExtender
from vrampack import backoff
from vrampack.kube import reflector, retry_backoff
from vrampack.simulator.object_store import ObjectStore
from vrampack.simulator.resource_kinds import NODE, POD, Object

NAMESPACE = "default"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CALLER_SECONDS = 5.0
"""The scheduler's httpTimeout."""

PIECE_SECONDS = 2.0
"""Less than what an extender takes for a stall of its loop."""

Mode = Literal["honest", "hostile", "two"]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """What is made once for many worlds, because making it takes longer than a run."""

    metrics: ExtenderMetrics
    settings: ExtenderConfiguration


def draw_settings() -> SimulationSettings:
    settings = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration")
    return SimulationSettings(ExtenderMetrics("simulation"), settings)


@dataclass(eq=False)
class Bind:
    """One bind call of the scheduler."""

    process: str
    pod: str
    uid: str
    node: str
    task: asyncio.Task[VerbResponse]
    started: float

    def __str__(self) -> str:
        return f"{self.process} {self.pod} {self.node}"

    def request(self) -> dict[str, str]:
        return {"PodName": self.pod, "PodNamespace": NAMESPACE, "PodUID": self.uid, "Node": self.node}


@dataclass(frozen=True, slots=True)
class Decided:
    """Filtered, a node chosen, the bind not yet called: the scheduler filters the next pod before it binds this one."""

    process: str
    pod: str
    uid: str
    node: str
    number: int = 0
    """Of the attempt."""

    def __str__(self) -> str:
        return f"{self.process} {self.pod} {self.node}"


@dataclass
class SimulationWorld:
    """A new one for every run."""

    mode: Mode
    around: SimulationSettings
    is_shuffled: bool = False
    seconds: float = 0.0
    throttled_until: float = 0.0
    """Until then the API server refuses calls, and watches are late."""
    made: int = 0
    uids: int = 0
    chosen: str = ""
    """What the last step meant, by name."""
    decided: list[Decided] = field(default_factory=list)
    attempts: int = 0
    binds: list[Bind] = field(default_factory=list)
    transcript: list[Object] = field(default_factory=list)
    spoiled: set[str] = field(default_factory=set)
    """Uids of pods that somebody else bound or wrote a record on."""
    crashes: list[str] = field(default_factory=list)
    """What verbs raised."""
    cordoned: set[str] = field(default_factory=set)
    """Nodes that the scheduler offers to no pod."""
    asked_to_bind: set[tuple[str, str]] = field(default_factory=set)
    """Process and uid of pods that were to be bound since filter was last called for them there."""
    on_filter: list[Callable[[SimulatedExtender, Object, Mapping[str, Any]], None]] = field(default_factory=list)
    """Told of every answer of filter."""

    def __post_init__(self) -> None:
        self.store = ObjectStore(now=self.now, new_uid=self.new_uid)
        self.network = Network()
        for name in NODES:
            self.add_node(name)
        names = ("e0", "e1") if self.mode == "two" else ("e0",)
        self.processes = {name: self.start(name) for name in names}
        self.run_ready()

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    def new_uid(self) -> str:
        self.uids += 1
        return f"u{self.uids}"

    def start(self, name: str) -> SimulatedExtender:
        return SimulatedExtender(
            name,
            store=self.store,
            network=self.network,
            metrics=self.around.metrics,
            settings=self.around.settings,
            clock=self.clock,
            is_shuffled=self.is_shuffled,
        )

    def kill(self, name: str, *, lands: bool) -> None:
        """A kill -9 and a start. What was sent is executed by then or never: a new process waits `ready_after_seconds`."""
        for call in [call for call in self.network.calls if call.process == name]:
            if lands:
                call.execute()
            self.network.calls.remove(call)
        for call in [call for call in self.network.late if call.process == name]:
            if lands:
                call.execute()
            self.network.late.remove(call)
        for bind in [bind for bind in self.binds if bind.process == name]:
            self.note(bind, None)
        self.processes[name].loop.kill()
        self.network.streams[:] = [stream for stream in self.network.streams if stream.process != name]
        self.network.calls = [call for call in self.network.calls if call.process != name]
        self.processes[name] = self.start(name)

    def pass_time(self, seconds: float) -> None:
        """Let time pass while every process runs: a leap of more than a few seconds would be a process that stood still."""
        while seconds > PIECE_SECONDS:
            self.seconds += PIECE_SECONDS
            seconds -= PIECE_SECONDS
            self.run_ready()
        self.seconds += seconds

    def run_ready(self) -> None:
        """Every process does what it can without hearing anything new."""
        for process in self.processes.values():
            process.loop.run_ready()
        for bind in [bind for bind in self.binds if bind.task.done()]:
            if error := bind.task.exception():
                self.crashes.append(f"{bind} raised {error!r}")
            self.note(bind, None if error else bind.task.result())

    def note(self, bind: Bind, answer: VerbResponse | None) -> None:
        """Write what the scheduler was answered into the transcript; None: it got no answer."""
        self.binds.remove(bind)
        line: Object = {"verb": "bind", "request": bind.request()}
        if answer is None:
            line |= {"status": None, "answer": None, "error": "cut"}
        else:
            line |= {"status": 200, "answer": msgspec.json.decode(answer.body), "error": None}
        self.transcript.append(line)

    def add_node(self, name: str) -> None:
        self.store.restore(NODE, "", a_node(name))

    def new_name(self) -> str:
        self.made += 1
        return f"p{self.made}"

    def create_pod(self, name: str, shape: int) -> None:
        self.store.create(POD, NAMESPACE, a_pod(name, shape))

    def pods(self) -> list[Object]:
        return list(self.store.read_page(POD, None).items)

    def nodes(self) -> list[Object]:
        return list(self.store.read_page(NODE, None).items)

    def pending(self) -> list[Object]:
        """What the scheduler would take up: unbound, without gates, not leaving, no bind of it under way."""
        busy = {bind.uid for bind in self.binds} | {decided.uid for decided in self.decided}
        return [
            pod
            for pod in self.pods()
            if not pod["spec"].get("nodeName")
            and not pod["spec"].get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["uid"] not in busy
        ]

    def filter(self, process: SimulatedExtender, pod: Object) -> tuple[list[str], dict[str, Any]]:
        """One cycle's first half: the nodes that pass, best first, and the whole answer."""
        names = [name for node in self.nodes() if (name := node["metadata"]["name"]) not in self.cordoned]
        body = encode({"Pod": POD.add_type_meta(pod), "NodeNames": names})
        self.asked_to_bind.discard((process.name, pod["metadata"]["uid"]))
        answer = msgspec.json.decode(process.verbs.filter(body).body)
        for observe in self.on_filter:
            observe(process, pod, answer)
        passed = answer["NodeNames"]
        if not passed or answer["Error"]:
            return [], answer
        scored = process.verbs.prioritize(encode({"Pod": POD.add_type_meta(pod), "NodeNames": passed}))
        scores = {each["Host"]: each["Score"] for each in msgspec.json.decode(scored.body)}
        return sorted(passed, key=lambda name: (-scores.get(name, 0), name)), answer

    def bind(self, process: str, pod: str, uid: str, node: str) -> None:
        asked = {"PodName": pod, "PodNamespace": NAMESPACE, "PodUID": uid, "Node": node}
        at = self.processes[process]
        self.asked_to_bind.add((process, uid))
        task = at.loop.create_task(at.verbs.bind(encode(asked)))
        self.binds.append(Bind(process, pod, uid, node, task, self.seconds))

    def hang_up(self, bind: Bind) -> None:
        """The scheduler waits no longer."""
        self.note(bind, None)
        bind.task.cancel()

    def compact(self) -> None:
        """Open watches go on; what begins from an older version is told 410."""
        for process in self.processes.values():
            for feed in process.api.feeds.values():
                feed.pending()
        self.store.compact()

    def close(self) -> None:
        for process in self.processes.values():
            process.loop.kill()


class _Still:
    """In place of `random` and `time` in the reflector and its back-off: every jitter is its middle, and time is the world's."""

    def __init__(self) -> None:
        self.monotonic = lambda: 0.0

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def randint(self, low: int, high: int) -> int:
        return (low + high) // 2


@contextmanager
def reflectors_without_chance(clock: Callable[[], float]) -> Iterator[None]:
    """The reflector's own clock and dice taken away, and the log."""
    still = _Still()
    still.monotonic = clock
    disabled = logging.root.manager.disable
    with pytest.MonkeyPatch.context() as patch:
        for module in (reflector, retry_backoff):
            patch.setattr(module, "random", still)
            patch.setattr(module, "time", still)
        patch.setattr(backoff, "random", still)
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextmanager
def simulation_world(mode: Mode, around: SimulationSettings, *, is_shuffled: bool = False) -> Iterator[SimulationWorld]:
    """A world whose every run is the same, for as long as this lasts."""
    worlds: list[SimulationWorld] = []
    with reflectors_without_chance(lambda: worlds[0].seconds if worlds else 0.0):
        worlds.append(SimulationWorld(mode, around, is_shuffled))
        try:
            yield worlds[0]
        finally:
            worlds[0].close()
