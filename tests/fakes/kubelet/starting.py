"""The start of a container, as far as devices and environment go.

PreStartContainer comes first and at *every* start. Then the environment is resolved, out of the pod as it was when
the start began.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.fakes.kubelet.admission import FakeAdmission
from tests.fakes.kubelet.books import DeviceCheckpoint
from tests.fakes.kubelet.endpoints import PluginEndpoint
from tests.fakes.kubelet.environment import resolve_environment
from tests.fakes.kubelet.errors import DeviceError
from tests.fakes.kubelet.pods import KubeletContainer, KubeletPod

REFUSED = "CreateContainerConfigError"


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A container that runs, with everything that reached the runtime."""

    container_id: str
    env: Mapping[str, str]
    device_ids: frozenset[str]
    cdi_devices: tuple[str, ...]
    annotations: Mapping[str, str]
    device_paths: tuple[str, ...]
    mount_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitingContainer:
    """The state of a container that kubelet could not start; it retries with back-off, for ever."""

    reason: str
    message: str


class StartRefusedError(Exception):
    """`Kubelet.start` could not start a container, which waits instead."""

    def __init__(self, waiting: WaitingContainer) -> None:
        super().__init__(f"{waiting.reason}: {waiting.message}")
        self.reason = waiting.reason
        self.message = waiting.message


@dataclass(frozen=True, slots=True)
class Starter:
    """One life of kubelet's way from a container's spec to its runtime configuration."""

    books: DeviceCheckpoint
    endpoints: dict[str, PluginEndpoint]
    admission: FakeAdmission
    random: Random
    pre_start_seconds: float

    async def start(
        self, pod: KubeletPod, container: KubeletContainer, image_env: Mapping[str, str]
    ) -> StartedContainer | WaitingContainer:
        spec = copy.deepcopy(pod.spec)
        state = pod.states[container.name]
        try:
            await self._prepare(pod, container)
            own = resolve_environment(spec, container)
        except DeviceError as error:
            state.waiting = (REFUSED, str(error))
            return WaitingContainer(REFUSED, str(error))
        state.restarts += bool(state.container_id)
        state.waiting, state.is_running = None, True
        state.container_id = f"containerd://{pod.uid}-{container.name}-{state.restarts}"
        pod.phase = "Running"
        return self._started(state.container_id, pod, container, {**image_env}, own)

    async def _prepare(self, pod: KubeletPod, container: KubeletContainer) -> None:
        needs_devices = False
        for resource, needed in container.limits.items():
            if needed and self.books.knows(resource):
                await self._pre_start(pod, container, resource)
                needs_devices |= resource not in self.books.held_by(pod.uid, container.name)
        if needs_devices:
            await self.admission.allocate(pod, container)

    async def _pre_start(self, pod: KubeletPod, container: KubeletContainer, resource: str) -> None:
        endpoint = self.endpoints.get(resource)
        if endpoint is None:
            raise DeviceError(f"endpoint not found in cache for a registered resource: {resource}")
        if endpoint.options is None or not endpoint.options.pre_start_required:
            return
        held = self.books.held_by(pod.uid, container.name).get(resource)
        if held is None:
            raise DeviceError(
                f"no devices found allocated in local cache for pod {pod.uid}, "
                f"container {container.name}, resource {resource}"
            )
        try:
            await endpoint.pre_start(self.random.sample(sorted(held.ids), len(held.ids)), self.pre_start_seconds)
        except DeviceError as error:
            raise DeviceError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _started(
        self,
        container_id: str,
        pod: KubeletPod,
        container: KubeletContainer,
        image_env: dict[str, str],
        own: Mapping[str, str],
    ) -> StartedContainer:
        """The pod's variables come after the plugin's, and the runtime takes the last of a name."""
        resources = self.books.held_by(pod.uid, container.name).values()
        answers = [held.answer for held in resources]
        given = {name: value for answer in reversed(answers) for name, value in answer.envs.items()}
        return StartedContainer(
            container_id=container_id,
            env={**image_env, **given, **own},
            device_ids=frozenset[str]().union(*(held.ids for held in resources)),
            cdi_devices=tuple(device.name for answer in answers for device in answer.cdi_devices),
            annotations={name: value for answer in answers for name, value in answer.annotations.items()},
            device_paths=tuple(device.host_path for answer in answers for device in answer.devices),
            mount_paths=tuple(mount.container_path for answer in answers for mount in answer.mounts),
        )
