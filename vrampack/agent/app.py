"""The agent, wired together on one page: who gets what, what runs, and how it stops.

    discovery --cards--> board --> plugin (kubelet) , own node (API server) , fence
    kubelet --PreStart--> starts --> fence, limits ; refused --> refusals --> eviction
    reflectors --> pods of this node, own node

It registers with kubelet when it knows its cards and which pods run on them, and not before: a start that it is asked
about meanwhile waits in kubelet. Without cards it idles.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vrampack.agent.board import Board
from vrampack.agent.devices import too_large
from vrampack.agent.discovery import Discovery, Notice, looking
from vrampack.agent.enforcement import Enforcement, Surroundings
from vrampack.agent.errors import KubeletError
from vrampack.agent.events import AgentReason
from vrampack.agent.fence import Fence, Start
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.metrics import Metrics
from vrampack.agent.node import OwnNode
from vrampack.agent.nvml.driver import Driver, Xid
from vrampack.agent.observed import needs_observing, observed
from vrampack.agent.overuse import Overuse
from vrampack.agent.pages import serving
from vrampack.agent.plugin import NO_CARD, DevicePlugin
from vrampack.agent.podresources import Held, PodResources
from vrampack.agent.pods import LocalPods
from vrampack.agent.refusals import Refusals
from vrampack.agent.registration import Registration
from vrampack.agent.rivals import Rivals
from vrampack.agent.settings import AgentConfiguration
from vrampack.agent.settling import Settled, environment, settled
from vrampack.agent.shim import status
from vrampack.agent.showing import Showing
from vrampack.agent.shown import ShimStatus
from vrampack.agent.starts import Starts
from vrampack.agent.steering import Steering
from vrampack.cards import keys
from vrampack.cards.node import CardFacts, DeviceNaming
from vrampack.cards.node_annotations import write_cards, write_observed
from vrampack.cards.records import Record
from vrampack.kube.client import Api, load_credentials
from vrampack.kube.events import EventRecorder
from vrampack.kube.objects import LocalNodeObject, LocalPodObject
from vrampack.kube.reflector import Reflector

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
CHOOSE_SECONDS = 5.0
"""Between two looks whether the back end that was named can work by now."""
OBSERVE_SECONDS = 30.0
"""kubelet's books say nothing when they change; a pod of another scheduler is seen within so long."""
NOTICES = {
    "unhealthy": AgentReason.CARD_UNHEALTHY,
    "recovered": AgentReason.CARD_RECOVERED,
    "vanished": AgentReason.CARD_GONE,
    "dropped": AgentReason.CARD_GONE,
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the agent was started."""

    settings: AgentConfiguration
    version: str
    node: str
    kubeconfig: Path | None = None
    """None: the service account of this pod."""
    context: str | None = None
    surroundings: Surroundings = field(default_factory=Surroundings)


class Agent:
    """One running agent."""

    def __init__(self, options: Options, api: Api, metrics: Metrics, driver: Driver) -> None:
        self._settings = settings = options.settings
        self._node = options.node
        self._metrics = metrics
        self._stopping = asyncio.Event()
        resource, folder = settings.resources.memory, settings.kubelet_folder
        self._events = EventRecorder(
            api, component="vrampack-agent", on_dropped=metrics.dropped_event, clock=time.monotonic, now=time.time
        )
        self._board = Board(check=lambda cards: too_large(cards, settings.unit_mib))
        self._books = PodResources(
            folder / "pod-resources" / "kubelet.sock",
            folder / "device-plugins" / "kubelet_internal_checkpoint",
            resource=resource,
        )
        self._pods = LocalPods(api, resource=resource, ended=self._ended)
        self._discovery = Discovery(
            driver,
            looking(settings),
            is_held=self._is_held,
            tell=self._noticed,
            heard=self._heard,
            failed=metrics.driver_errors.inc,
        )
        self._fence = Fence(options.node)
        self._enforcement = Enforcement(
            settings,
            driver,
            found=self._discovery,
            pod_of=self._pods.of,
            pods=self._pods.all,
            surroundings=options.surroundings,
        )
        self._devices: DeviceNaming = "uuid"
        """As the node's cards were last published."""
        self._unheld = ""
        """Why the back end that was chosen holds nobody who starts now."""
        self._refusals = Refusals(
            api,
            self._fence,
            self._events,
            cards=self._cards,
            evicted=metrics.evictions.inc,
            clock=time.monotonic,
            after_seconds=settings.refused.after_seconds,
            mode=settings.refused.action,
        )
        self._overuse = Overuse(
            self._enforcement.over, api, self._events, pod_of=self._pods.of, evicted=metrics.evictions.inc
        )
        starts = Starts(
            self._fence,
            self._books,
            self._pods,
            self._enforcement,
            self._refusals,
            metrics,
            cards=self._cards,
            settling=self._settled if settings.injection == "ids" else None,
        )
        self._steering = Steering(self._pods.all)
        plugin = DevicePlugin(
            self._board,
            starts,
            self._steering,
            metrics,
            environment=self._environment,
            mounts=self._enforcement.mounts,
        )
        self._registration = Registration(
            plugin,
            self._board,
            metrics,
            folder=folder / "device-plugins",
            resource=resource,
            registered=self._registered,
        )
        self._rivals = Rivals(
            self._board,
            resource=resource,
            are_divided=settings.cards.are_named,
            is_registered=lambda: self._registration.is_registered,
            register_again=self._registration.again,
            clock=time.monotonic,
        )
        self._own_node = OwnNode(api, options.node, wrote=metrics.node_writes.inc, offers=self._rivals.node_offers)
        self._showing = Showing(driver, self._board, self._fence, self._pods, self._enforcement, metrics)
        metrics.show(self._showing.look)
        here = f"spec.nodeName={options.node}"
        self._reflectors = (
            Reflector(api, "pods", LocalPodObject, self._pods, field_selector=here),
            Reflector(api, "nodes", LocalNodeObject, self._own_node, field_selector=f"metadata.name={options.node}"),
        )

    async def run(self) -> None:
        """Serve until `stop`. Raises `OSError` when the health address cannot be listened on."""
        pages = serving(self._settings.listen.health, self._metrics, self.not_ready, self._shim)
        try:
            async with pages, asyncio.TaskGroup() as group:
                background = [group.create_task(task) for task in self._background()]
                await self._stopping.wait()
                log.info("stopping")
                for task in background:
                    task.cancel()
        finally:
            self._enforcement.close()
        log.info("stopped")

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._stopping.set()

    def not_ready(self) -> str:
        """Why no pod could start here now; empty when all is well, and on a node without cards."""
        if self._stopping.is_set():
            return "stopping"
        if not self._board.offer.is_known:
            return f"the cards of this node are not known yet{': ' * bool(self._discovery.problem)}{self._discovery.problem}"
        if self._board.offer.cards and not self._registration.is_registered:
            return "not registered with kubelet"
        return f"limits cannot be held: {self._unheld}" if self._unheld else ""

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        return [
            *(reflector.run() for reflector in self._reflectors),
            self._discovery.run(self._found),
            self._events.run(),
            self._own_node.run(),
            self._publish(),
            self._observe(),
            self._refusals.run(),
            self._overuse.run(),
            self._rivals.run(),
            self._showing.run(),
            self._enforcement.look_after(self._cannot_hold),
            self._serve_kubelet(),
        ]

    async def _serve_kubelet(self) -> None:
        """Register once the fence knows who runs already, and what each holds."""
        async for offer in self._board.offers():
            if offer.cards:
                break
            if offer.is_known:
                log.info("idle: %s", offer.problem or "this node has no cards")
        await self._pods.listed_once()
        self._fence.restore(self._pods.all(), await self._books_of_kubelet(), self._cards())
        is_chosen = await self._choose()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._registration.run())
            while not is_chosen:
                await asyncio.sleep(CHOOSE_SECONDS)
                is_chosen = await self._choose()

    async def _choose(self) -> bool:
        """Who holds limits. False where what is missing may come: a module that is loaded later, a hook."""
        problem, is_over = "", True
        try:
            await self._enforcement.begin(self._board.offer.cards, self._discovery.driver_version)
        except ImpossibleBackEndError as error:
            problem, is_over = f"enforcement: {error}", False
        except OSError as error:
            problem = f"enforcement: {error}"
        self._board.object("enforcement", problem)
        self._own_node.want({("labels", keys.ENFORCEMENT): self._enforcement.word or None})
        return is_over

    def _cannot_hold(self, problem: str) -> None:
        self._unheld = problem
        self._board.object("limits", f"limits cannot be held: {problem}" if problem else "")

    async def _registered(self) -> None:
        """Until a moment ago kubelet asked nobody: who started meanwhile is counted now."""
        if not self._fence.unknown(self._pods.all()):
            return
        held = await self._books_of_kubelet()
        for pod in self._fence.restore(self._pods.all(), held, self._cards()):
            self._metrics.unfenced.inc()
            log.warning("started while the agent was not registered pod=%s uid=%s", pod.pod, pod.pod.uid)

    async def _books_of_kubelet(self) -> tuple[Held, ...]:
        """Kubelet's books as soon as it shows them."""
        while True:
            try:
                return await self._books.held()
            except KubeletError as error:
                log.warning("waiting for kubelet error=%s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _publish(self) -> None:
        """The Node's own words about its cards, at each change. A node that never had any says nothing."""
        async for offer in self._board.offers():
            if offer.problem:
                log.error("cards are not offered: %s", offer.problem)
                self._events.record_node_event(self._node, AgentReason.NOT_OFFERED, offer.problem)
            await self._own_node.seen_once()
            if not offer.is_known or (not offer.cards and self._says_nothing()):
                continue
            self._board.object("runtime", self._enforcement.problem(offer.cards))
            self._devices = self._enforcement.devices(offer.cards)
            text = write_cards(
                offer.shown,
                unit_mib=self._settings.unit_mib,
                injection=self._settings.injection,
                devices=self._devices,
            )
            self._own_node.want({("annotations", keys.NODE_CARDS): text})

    async def _observe(self) -> None:
        """Where pods without a readable record are, for the extender."""
        while True:
            try:
                async with asyncio.timeout(OBSERVE_SECONDS):
                    await self._pods.next_change()
            except TimeoutError:
                log.debug("looking for pods without a record")
            self._enforcement.pods_changed()
            if self._registration.is_registered:
                await self._registered()  # what started before the registration may be seen after it
            cards = self._cards()
            pods = [pod for pod in self._pods.all() if needs_observing(pod, cards)]
            if not pods and self._own_node.says("annotations", keys.NODE_OBSERVED) is None:
                continue
            try:
                found = observed(pods, await self._books.held() if pods else (), cards)
            except KubeletError as error:
                log.warning("pods not observed error=%s", error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._own_node.want({("annotations", keys.NODE_OBSERVED): write_observed(found) if found else None})

    def _environment(self, ids: Iterable[str]) -> Mapping[str, str]:
        """What `Allocate` tells a container."""
        if self._settings.injection == "exact":
            return NO_CARD
        return environment(ids, self._cards(), devices=self._devices)

    def _settled(self, start: Start) -> Settled:
        return settled(
            start,
            self._cards(),
            devices=self._devices,
            unit_mib=self._settings.unit_mib,
            now_ns=time.time_ns(),
        )

    def _shim(self) -> ShimStatus:
        return status(
            self._node,
            self._enforcement,
            driver_version=self._discovery.driver_version,
            cards=self._cards(),
            pods=self._pods.all(),
        )

    def _found(self) -> None:
        if self._discovery.is_outdated:
            log.error("the driver was exchanged under this process: ending, so that the next one has its library")
            self.stop()
        self._board.found(self._discovery.cards, self._discovery.problem if not self._discovery.cards else "")

    def _noticed(self, notice: Notice) -> None:
        reason = NOTICES.get(notice.kind)
        if reason is not None:
            text = f"card {notice.gpu.uuid} {notice.kind}: {notice.text}"
            self._events.record_node_event(self._node, reason, text, card=notice.gpu.index)

    def _heard(self, xid: Xid) -> None:
        self._metrics.xid_errors.labels(xid.uuid or "", str(xid.number)).inc()

    def _ended(self, uid: str) -> None:
        self._fence.ended(uid)
        self._refusals.ended(uid)
        self._overuse.ended(uid)
        self._steering.ended(uid)
        self._enforcement.ended(uid)

    def _is_held(self, uuid: str) -> bool:
        """Whether a live pod here has units of that card, by record or by what was let through."""
        records = [pod.pod.record for pod in self._pods.all()]
        recorded = {share.uuid for record in records if isinstance(record, Record) for share in record.shares}
        return uuid in recorded or self._fence.units_held()[uuid] > 0

    def _says_nothing(self) -> bool:
        return self._own_node.says("annotations", keys.NODE_CARDS) is None

    def _cards(self) -> tuple[CardFacts, ...]:
        return self._board.offer.cards


async def run(options: Options, driver: Driver) -> None:
    """Run the agent until SIGTERM or SIGINT.

    Raises `CredentialsError` or `OSError` (a port in use) at the start.
    """
    metrics = Metrics(options.version, node=options.node)
    configuration = await load_credentials(options.kubeconfig, options.context)
    api = Api(configuration, observe=metrics.observe_call, user_agent=f"vrampack-agent/{options.version}")
    try:
        agent = Agent(options, api, metrics, driver)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        log.info("agent version=%s node=%s health=%s", options.version, options.node, options.settings.listen.health)
        await agent.run()
    finally:
        await api.close()
