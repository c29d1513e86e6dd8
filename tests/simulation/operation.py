"""A cluster in operation: pods come and go, the scheduler tries and tries again, and the API server has bad hours.

Where `steps` draws orders of events that hardly ever happen, this is what happens every day, for a long time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.simulation.invariants import InvariantChecker
from tests.simulation.network import NetworkCall, encode_status
from tests.simulation.network_steps import NOT_FROM_API_SERVER, SERVER_ERROR, THROTTLED
from tests.simulation.objects import NODES
from tests.simulation.world import Decided, SimulationWorld
from vrampack.simulator.resource_kinds import Object

Health = Literal["well", "no bindings", "no writes", "no answers", "unauthorized", "throttled"]
"""What the API server takes: everything, no Binding, no write at all, no call, no call with these credentials, or a third of
the calls, with watches that are late."""

WRITES = {"bind", "patch"}
LANDS_WITHIN_SECONDS = 20.0
"""How late a Binding lands that was answered with an error."""
VOLUME_SECONDS = 40.0
"""The most that a pod waits for its volume."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 10.0
"""The scheduler's own back-off."""


@dataclass
class OperatedCluster:
    """One world whose scheduler never gives up. Everything is drawn from `dice`."""

    world: SimulationWorld
    judge: InvariantChecker
    dice: Random
    health: Health = "well"
    tick_seconds: float = 1.0
    _retry_at: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the scheduler tries each pod again, and its back-off then, by uid."""
    _waits: list[tuple[float, Decided]] = field(default_factory=list)
    """When the volumes of pods that have a node are there."""
    _lands: list[tuple[float, NetworkCall]] = field(default_factory=list)

    def forget_the_past(self) -> None:
        """What the test itself remembers must not grow with the hours."""
        self.world.transcript.clear()
        self.world.on_filter.clear()
        self.world.network.on_bind.clear()
        self.world.network.on_bound.clear()
        self.world.network.late.clear()
        self.world.compact()
        self.judge = InvariantChecker(self.world)

    def run(self, seconds: float) -> None:
        """Let so much time pass. Raises `BrokenPromiseError`."""
        end = self.world.seconds + seconds
        while self.world.seconds < end:
            self.tick()

    def tick(self) -> None:
        """One tick: what is due lands, the scheduler tries who is due, everything sent meanwhile is answered."""
        self._land_late_bindings()
        self._answer_all()
        self._bind_late()
        self._schedule()
        self._answer_all()
        for stream in self.world.network.streams:
            stream.send("BOOKMARK", {"metadata": {"resourceVersion": str(self.world.store.version)}})
        self.judge.check_step()
        self.world.seconds += self.tick_seconds
        self.world.run_ready()

    def _schedule(self) -> None:
        pending = self.world.pending() if self.world.cordoned < NODES.keys() else []
        self._retry_at = {
            uid: self._retry_at[uid] for pod in pending if (uid := pod["metadata"]["uid"]) in self._retry_at
        }
        for pod in pending:
            due, wait = self._retry_at.get(pod["metadata"]["uid"], (0.0, FIRST_RETRY_SECONDS))
            if pod["spec"].get("schedulingGates") or self.world.seconds < due:
                continue
            self._retry_at[pod["metadata"]["uid"]] = (self.world.seconds + wait, min(2 * wait, LAST_RETRY_SECONDS))
            self._try_pod(pod)

    def _try_pod(self, pod: Object) -> None:
        process = next(iter(self.world.processes.values()))
        ranked, _ = self.world.filter(process, pod)
        if not ranked:
            return
        self.world.attempts += 1
        metadata = pod["metadata"]
        decided = Decided(process.name, metadata["name"], metadata["uid"], ranked[0], self.world.attempts)
        if pod["spec"].get("volumes"):
            self.world.decided.append(decided)
            self._waits.append((self.world.seconds + self.dice.random() * VOLUME_SECONDS, decided))
        else:
            self._bind(decided)

    def _bind_late(self) -> None:
        """The pods whose volumes are there."""
        due = [each for at, each in self._waits if at <= self.world.seconds]
        self._waits = [each for each in self._waits if each[0] > self.world.seconds]
        for decided in due:
            self.world.decided.remove(decided)
            self._bind(decided)

    def _bind(self, decided: Decided) -> None:
        self.world.bind(decided.process, decided.pod, decided.uid, decided.node)
        self.world.run_ready()
        self._answer_all()

    def _land_late_bindings(self) -> None:
        for due, call in self._lands:
            if due <= self.world.seconds:
                call.execute()
        self._lands = [each for each in self._lands if each[0] > self.world.seconds]

    def _answer_all(self) -> None:
        """Until no call is waiting."""
        while True:
            for call in tuple(self.world.network.calls):
                self._answer(call)
            watches = [] if self.health == "throttled" and self.dice.random() < 0.8 else self.world.network.streams
            for stream in watches:
                while stream.is_open and stream.feed.pending():
                    stream.send_change(stream.feed.take(0))
            self.world.run_ready()
            if not self.world.network.calls and not any(each.feed.pending() for each in watches):
                return

    def _answer(self, call: NetworkCall) -> None:
        if not self._fails(call):
            call.answer()
            return
        if self.health == "unauthorized":
            call.reply(401, encode_status(401, "Unauthorized", "Unauthorized"))
            return
        if self.health == "throttled" or call.verb != "bind":
            call.is_executed = True
            call.reply(*self.dice.choice(THROTTLED if self.health == "throttled" else (SERVER_ERROR, *THROTTLED)))
            return
        if self.dice.random() < 0.5:
            self._lands.append((self.world.seconds + self.dice.random() * LANDS_WITHIN_SECONDS, call))
        call.reply(*self.dice.choice((SERVER_ERROR, *NOT_FROM_API_SERVER)))

    def _fails(self, call: NetworkCall) -> bool:
        if self.health == "well":
            return False
        if self.health == "throttled":
            return call.verb != "watch" and self.dice.random() < 0.67
        if self.health == "no bindings":
            return call.verb == "bind"
        return self.health in ("no answers", "unauthorized") or call.verb in WRITES


def find_pods_with_a_place(cluster: OperatedCluster) -> list[str]:
    """Unbound pods with a place in the ledger of some extender."""
    return [
        f"{process.name} {place.pod} on {place.node_name}"
        for process in cluster.world.processes.values()
        for place in process.ledger.places
    ]
