"""Gets cards into containers on this node: wires the parts of `cdi/` together, and knows the mode that was chosen.

The mode belongs to the container. kubelet repeats `Allocate`'s answer for as long as a pod lives, so after a change containers
of both modes run and restart side by side: that answer tells them apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from vrampack.agent.admission.card_injection import CardInjection, list_device_names
from vrampack.agent.admission.errors import RefusedStartError
from vrampack.agent.cdi.device_names import make_device_name, qualify_name
from vrampack.agent.cdi.edits_source import CdiHostPaths, EditsSource
from vrampack.agent.cdi.injection_choice import ChosenMode, InjectionChoice
from vrampack.agent.cdi.read_watch import ReadWatch
from vrampack.agent.cdi.runtime_probe import RuntimeProbe, parse_runtime
from vrampack.agent.cdi.spec_folder import SpecFolder
from vrampack.agent.cdi.spec_publisher import SpecPublisher
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.cluster.own_node import OwnNode
from vrampack.agent.cluster.pod_cache import PodCache
from vrampack.agent.inventory.known_cards import CardPresence
from vrampack.agent.kubelet.generated import deviceplugin_pb2 as api
from vrampack.agent.kubelet.podresources import CheckpointAllocation
from vrampack.agent.limits.cgroups import find_process_owner
from vrampack.agent.limits.detection import NodeCapabilities, ToolkitState
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.metrics import AgentMetrics
from vrampack.agent.settings import AgentConfiguration
from vrampack.cards import well_known
from vrampack.cards.env_injection import VISIBLE_DEVICES_VARIABLE
from vrampack.kube.objects import NodeSystemInfo

NO_CARD_ENV: Final = {VISIBLE_DEVICES_VARIABLE: "void"}
"""Makes NVIDIA's runtime add no card and no driver files. The pod's own environment overrides it."""
FOLDER_SECONDS = 5.0
"""How often to check that the spec folder is still the node's: while it is not, no container with a card starts."""
REVIEW_SECONDS = 60.0
"""How often to check again a node whose runtime does not read specs yet."""
FAULT_REVIEW_SECONDS = 5.0
"""The same for a node whose mode is `cdi`, while it offers no cards or a start failed."""


class Injection:
    """One node's."""

    def __init__(
        self,
        settings: AgentConfiguration,
        context: NodeContext,
        enforcement: Enforcement,
        pods: PodCache,
        metrics: AgentMetrics,
    ) -> None:
        self._context = context
        self._enforcement = enforcement
        self._pods = pods
        self._metrics = metrics
        self._hook = settings.cdi.hook
        self._watch = ReadWatch()
        self._node: OwnNode | None = None
        self._has_doubts = asyncio.Event()
        folder = self._folder = SpecFolder(settings.cdi.folder, self._watch)
        self._publisher = SpecPublisher(
            folder,
            self._watch,
            metrics,
            get_container_id=self._get_container_id,
            is_missing=lambda uuid: context.cards.find_presence(uuid) is CardPresence.MISSING,
            clock=time.monotonic,
        )
        folders = tuple(dict.fromkeys((*context.paths.cdi_folders, settings.cdi.folder)))
        host_paths = CdiHostPaths(folders, context.paths.proc, settings.cdi.nvidia_ctk, settings.cdi.driver_root)
        edits = EditsSource(host_paths, has_drm_nodes=settings.cdi.drm_nodes)
        probe = RuntimeProbe(folder, self._watch, context.paths.node_proc, folders, is_in_pod=self._is_in_pod)
        self._choice = InjectionChoice(settings.injection, probe, edits, self._publisher, clock=time.monotonic)
        self._cards = CardInjection(
            self._publisher,
            edits,
            get_gpus=lambda: context.cards.gpus,
            list_mounts=enforcement.list_mounts,
            get_hook=self._get_hook,
            needs_limit_hook=lambda: enforcement.needs_toolkit,
            driver_capabilities=settings.cdi.driver_capabilities,
        )

    @property
    def mode(self) -> ChosenMode:
        """The mode of containers that kubelet allocates devices for from now on."""
        return self._choice.mode

    @property
    def reason(self) -> str:
        return self._choice.reason

    @property
    def problem(self) -> str:
        """Why no container can get a card in this mode; empty when all is well."""
        return self._choice.problem

    def extend_capabilities(self, found: NodeCapabilities) -> NodeCapabilities:
        """Add what specs carry: our createRuntime hook, and NVIDIA's own if the edits of every card have it."""
        if self.mode != "cdi":
            return found
        no_toolkit = ToolkitState.OLD if found.toolkit is ToolkitState.READY else found.toolkit
        return replace(
            found,
            has_hook=found.has_hook or self._hook is not None,
            toolkit=ToolkitState.READY if self._choice.has_limit_hooks else no_toolkit,
        )

    async def wait_until_chosen(self) -> None:
        await self._choice.wait_until_decided()

    async def choose_mode(self, node: OwnNode) -> None:
        """The first choice, on a node that has cards."""
        self._node = node
        if node.get_current("labels", well_known.INJECTION) == "cdi":
            self._choice.restore_mode("cdi")
        await self._choose()

    async def run(self, on_changed: Callable[[], None], on_folder_removed: Callable[[], None]) -> None:
        """Delete used specs and those of an earlier agent, and review the mode while it is not settled, until cancelled.

        `on_folder_removed`: the node's spec folder was removed, and this process still sees the removed one and cannot change that.
        """
        self._publisher.remove_all_specs()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publisher.run())
            tasks.create_task(self._review_mode(on_changed))
            tasks.create_task(self._watch_folder(on_folder_removed))

    def forget_pod(self, uid: str) -> None:
        """The pod has ended: delete its specs."""
        self._publisher.forget_pod(uid)

    def stop(self) -> None:
        """Delete all specs: without this agent nothing may start."""
        self._publisher.remove_all_specs()
        self._watch.close()

    def build_answer(self) -> api.ContainerAllocateResponse:
        """`Allocate`'s answer for one container. In neither mode does it contain the card."""
        if self.mode == "cdi":
            device = api.CDIDevice(name=qualify_name(make_device_name()))
            return api.ContainerAllocateResponse(envs=NO_CARD_ENV, cdi_devices=[device])
        mounts = [
            api.Mount(host_path=host, container_path=inside, read_only=True)
            for inside, host in self._enforcement.list_mounts().items()
        ]
        return api.ContainerAllocateResponse(envs=NO_CARD_ENV, mounts=mounts)

    async def inject_cards(self, pod: LocalPod, entries: Iterable[CheckpointAllocation]) -> None:
        """Call before a container of `pod` with one of these allocations starts. Raises `RefusedStartError`."""
        try:
            await self._cards.inject_cards(pod, entries)
        except RefusedStartError as error:
            if error.reason == "cdi":
                self._choice.doubt_mode()
                self._has_doubts.set()
            raise

    async def _choose(self) -> bool:
        system = self._node.system if self._node is not None else NodeSystemInfo()
        has_changed = await self._choice.choose_mode(
            parse_runtime(system.container_runtime_version), system.kubelet_version, self._context.cards.gpus.values()
        )
        self._metrics.show_injection(self.mode)
        return has_changed

    async def _review_mode(self, on_changed: Callable[[], None]) -> None:
        await self._choice.wait_until_decided()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAULT_REVIEW_SECONDS if self.mode == "cdi" else REVIEW_SECONDS):
                    await self._has_doubts.wait()
            self._has_doubts.clear()
            if not self._choice.is_settled and await self._choose():
                on_changed()

    async def _watch_folder(self, on_removed: Callable[[], None]) -> None:
        await self._choice.wait_until_decided()
        while True:
            await asyncio.sleep(FOLDER_SECONDS)
            if self.mode == "cdi" and self._folder.is_removed():
                on_removed()

    def _is_in_pod(self, pid: int) -> bool:
        return find_process_owner(pid, self._context.paths.node_proc) is not None

    def _get_hook(self) -> Path | None:
        return self._hook if self._enforcement.needs_hook else None

    def _get_container_id(self, pod_uid: str, container: str) -> str:
        pod = self._pods.find_pod(pod_uid)
        return pod.container_ids.get(container, "") if pod is not None else ""


def select_injected(entries: Iterable[CheckpointAllocation], pod_uid: str) -> list[CheckpointAllocation]:
    """The pod's allocations that get their card by CDI."""
    return [each for each in entries if each.pod_uid == pod_uid and list_device_names(each)]
