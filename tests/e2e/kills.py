"""The moments at which an extender is killed, each arranged and not left to chance.

    scheduler --bind--> front --> extender --POST--> proxy --> API server
                        3 stops                      1 stops   2 stops
                        the answer                   the POST  its reply

One of the two proxies stops the traffic at the moment wanted; the kill follows, the fault ends, and the same program is
started on the same ports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from signal import SIGKILL

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.stream import PodStream
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.polling import wait_until
from tests.support.processes import ManagedProcess

BINDING = r"/pods/[^/]+/binding$"
LIST = r"^/api/v1/(pods|nodes)\?limit="
REACHED_SECONDS = 30
"""A pod that failed a few times is tried again after 10 s at the latest."""


@dataclass(frozen=True, slots=True)
class KillScene:
    """An extender between a scheduler and the API server, a proxy on either side, and pods on their way."""

    extender: ExtenderProgram
    front: FaultProxyThread
    api: FaultProxyThread
    stream: PodStream
    random: Random

    def kill(self) -> None:
        kill_running(self.extender.process)

    def start(self) -> None:
        self.extender.process.start()
        self.extender.wait_ready()


Kill = Callable[[KillScene], None]


def before_the_post_leaves(scene: KillScene) -> None:
    """The place is reserved; the API server does not know of it and never will."""
    held = scene.api.when("POST", BINDING).hold(times=1)
    _some_pods(scene)
    scene.api.reached(held, within=REACHED_SECONDS)
    scene.kill()
    (binding,) = wait_until(
        lambda: [each for each in scene.api.matching("POST", BINDING) if each.rule is held and each.outcome]
    )
    assert binding.status is None, "it was forwarded after all"


def after_the_write(scene: KillScene) -> None:
    """The pod is bound; only the API server knows."""
    held = scene.api.when("POST", BINDING).hold_reply(times=1)
    _some_pods(scene)
    scene.api.reached(held, within=REACHED_SECONDS)
    scene.kill()


def before_the_scheduler_hears(scene: KillScene) -> None:
    """The pod is bound and the extender has said so; its answer is lost with it."""
    lost = scene.front.when("POST", "/bind$").cut_after_write(times=1)
    _some_pods(scene)
    scene.front.reached(lost, within=REACHED_SECONDS)
    scene.kill()


def during_the_rebuild(scene: KillScene) -> None:
    """It starts on a cluster full of pods, and dies before it knows them."""
    _some_pods(scene)
    scene.kill()
    held = scene.api.when("GET", LIST).hold_reply(times=1)
    scene.extender.process.start()
    scene.api.reached(held, within=REACHED_SECONDS)
    scene.kill()


def at_some_bind(scene: KillScene) -> None:
    """Wherever it happens to be when the n-th Binding leaves."""
    _after_some_bindings(scene)
    scene.kill()


def in_order(scene: KillScene) -> None:
    """Not killed but stopped, as an update does it: binds under way are finished first."""
    _after_some_bindings(scene)
    assert scene.extender.process.stop() == 0


KILLS: tuple[Kill, ...] = (
    before_the_post_leaves,
    after_the_write,
    before_the_scheduler_hears,
    during_the_rebuild,
    at_some_bind,
    in_order,
)


def kill_and_start(scene: KillScene, kill: Kill) -> None:
    """One kill, and the restart after it."""
    kill(scene)
    scene.api.clear()
    scene.front.clear()
    scene.start()


def kill_running(process: ManagedProcess) -> None:
    """SIGKILL, of a program that runs: one that ended by itself fails the test."""
    assert process.is_running, f"{process.name} ended by itself\n{process.log_tail()}"
    assert process.stop(SIGKILL) == -SIGKILL


def _some_pods(scene: KillScene) -> None:
    scene.stream.create_more(scene.random.randint(2, 5))


def _after_some_bindings(scene: KillScene) -> None:
    wanted = scene.api.count("POST", BINDING) + scene.random.randint(1, 4)
    scene.stream.create_more(5)
    scene.api.seen("POST", BINDING, wanted, within=REACHED_SECONDS)
