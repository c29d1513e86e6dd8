"""The agent: what runs, in which order it starts, and how it stops. `components.py` has its parts.

It registers with kubelet only when it knows its cards and which pods run on them: until then starts wait in kubelet.
Without cards it idles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from vrampack.agent.components import AgentComponents, AgentOptions
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.nvml.driver import GpuDriver
from vrampack.agent.status.http import StatusPages, serve_status
from vrampack.agent.status.readiness import DriverState, find_unready_reason
from vrampack.agent.status.schema import LimitsStatus
from vrampack.agent.status.status import build_limits_status
from vrampack.kube.client import Api

log = logging.getLogger(__name__)

RESTORE_RETRY_SECONDS = 5.0
"""Between two attempts to read the node's files before the agent registers."""
OBSERVE_INTERVAL_SECONDS = 30.0
"""kubelet does not announce changed device allocations; a pod of another scheduler is noticed within this time."""


class Agent:
    """One running agent."""

    def __init__(self, options: AgentOptions, api: Api, metrics: AgentMetrics, driver: GpuDriver) -> None:
        self._settings = options.settings
        self._node = options.node
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self.components = AgentComponents(options, api, metrics, driver)

    async def run(self) -> None:
        """Serve until `stop`. Raises `OSError` when an address cannot be listened on."""
        parts = self.components
        pages = StatusPages(self._metrics, self.find_unready_reason, self._build_limits_status)
        status_server = serve_status(self._settings, pages, metrics_access=parts.metrics_access)
        try:
            async with status_server, asyncio.TaskGroup() as group:
                background = [group.create_task(task) for task in self._background_tasks()]
                await self._stopping.wait()
                log.info("stopping")
                for task in background:
                    task.cancel()
        finally:
            parts.injection.stop()
            await parts.hook_server.stop()
            await parts.pod_resources.close()
            parts.enforcement.stop()
        log.info("stopped")

    def stop(self) -> None:
        """Begin a clean stop; a second call changes nothing."""
        self._stopping.set()

    def find_unready_reason(self) -> str:
        """Why no pod could start here now; empty when all is well, and on a node without cards."""
        parts = self.components
        if self._stopping.is_set():
            return "stopping"
        discovery, problem = parts.discovery, parts.registration.problem
        driver = DriverState(discovery.problem, discovery.is_driver_absent, discovery.unhealthy_reasons)
        return find_unready_reason(parts.advertisement.current, driver, registration_problem=problem)

    def _background_tasks(self) -> list[Coroutine[Any, Any, None]]:
        parts = self.components
        return [
            *(reflector.run() for reflector in parts.reflectors),
            parts.discovery.run(self._on_cards_changed),
            parts.events.run(),
            parts.own_node.run(),
            parts.card_publisher.run(),
            parts.sick_card_pods.run(),
            self._follow_pods(),
            parts.rejected_pods.run(),
            parts.lingering_pods.run(),
            parts.overuse_reporter.run(),
            parts.conflicting_plugins.run(),
            parts.resource_slices.run(),
            parts.usage_collector.run(),
            parts.usage_lease.run(),
            parts.enforcement.run(parts.set_limits_problem),
            parts.injection.run(parts.publish_injection, self._restart_for_folder),
            self._serve_kubelet(),
        ]

    async def _serve_kubelet(self) -> None:
        """Register once the fence knows which pods run already, and what each holds."""
        parts = self.components
        async for advertised in parts.advertisement.watch_changes():
            if advertised.cards:
                break
            if advertised.is_discovered:
                log.info("agent idle reason=%s", advertised.problem or "this node has no cards")
        await parts.own_node.wait_for_sync()
        await self._restore_state()
        await parts.observed_pods.publish_pods()  # the first check may have come before the cards were known
        await parts.enforcement_starter.start_enforcement()
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.registration.run())
            group.create_task(parts.enforcement_starter.run())

    async def _restore_state(self) -> None:
        """Retry: what fails now, for want of descriptors or because a folder cannot be read, may work later."""
        parts = self.components
        while True:
            try:
                await parts.injection.choose_mode(parts.own_node)
                parts.publish_injection()
                await parts.pod_cache.wait_for_sync()
                await parts.running_pods.restore_fence()
            except OSError as error:
                log.error("node not read error=%s", error)  # noqa: TRY400 - a fault of the node, no traceback
                parts.advertisement.block("restore", f"the agent cannot read the node: {error}")
                await asyncio.sleep(RESTORE_RETRY_SECONDS)
            else:
                parts.advertisement.block("restore", "")
                return

    def _restart_for_folder(self) -> None:
        log.error("spec folder removed, exiting so that the new one is mounted")
        self.stop()

    async def _follow_pods(self) -> None:
        """Ask kubelet for what only it knows about the pods, at each change of them and periodically."""
        parts = self.components
        while True:
            try:
                async with asyncio.timeout(OBSERVE_INTERVAL_SECONDS):
                    await parts.pod_cache.wait_for_change()
            except TimeoutError:
                log.debug("checking unrecorded pods")
            parts.enforcement.notify_pods_changed()
            parts.unguarded_starts.check_containers(parts.pod_cache.list_pods(), parts.workload.get_limits_mib)
            if parts.registration.is_registered:
                # What started before the registration may be seen after it.
                await parts.running_pods.count_unfenced_starts()
            await parts.observed_pods.publish_pods()

    def _build_limits_status(self) -> LimitsStatus:
        parts = self.components
        version, pods = parts.discovery.driver_version, parts.pod_cache.list_pods()
        return build_limits_status(
            self._node,
            parts.enforcement,
            parts.workload,
            driver_version=version,
            cards=parts.get_cards(),
            pods=pods,
            unguarded=parts.unguarded_starts.list_containers(),
        )

    def _on_cards_changed(self) -> None:
        parts = self.components
        if parts.discovery.is_outdated:
            log.error("driver replaced, exiting so that the new library is loaded")
            self.stop()
        cards = parts.discovery.cards
        parts.advertisement.update_cards(cards, "" if cards else parts.discovery.problem)
