"""The kubelet of one node, for tests of a device plugin.

    async with FakeKubelet(folder, seed=1) as kubelet:
        await kubelet.registered("aliyun.com/gpu-mem")
        pod = kubelet_pod(units=4)
        await kubelet.admit(pod)
        started = await kubelet.start(pod, "main")
        started.env["NVIDIA_VISIBLE_DEVICES"]

`restart` and `reboot` simulate a kubelet that was killed; `doors` hold or refuse what comes in from the plugin. What kubelet retries
after a back-off is a call here: a refused start is tried again by calling `start` again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

import grpc

from tests.fakes.kubelet.admission import FakeAdmission
from tests.fakes.kubelet.books import DeviceCheckpoint, read_checkpoint
from tests.fakes.kubelet.doors import FaultPoints
from tests.fakes.kubelet.endpoints import Timeouts
from tests.fakes.kubelet.errors import DeviceError
from tests.fakes.kubelet.history import KubeletHistory, PluginCall
from tests.fakes.kubelet.podresources import Lister
from tests.fakes.kubelet.pods import KubeletPod
from tests.fakes.kubelet.registration import Registrar
from tests.fakes.kubelet.serving import serve
from tests.fakes.kubelet.starting import StartedContainer, Starter, StartRefusedError, WaitingContainer
from vrampack.agent.kubelet.generated.deviceplugin_pb2_grpc import add_RegistrationServicer_to_server
from vrampack.agent.kubelet.generated.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server


@dataclass(frozen=True, slots=True)
class Life:
    """Everything that a kubelet process has and loses when it is killed."""

    books: DeviceCheckpoint
    registrar: Registrar
    admission: FakeAdmission
    starter: Starter
    servers: tuple[grpc.aio.Server, ...]


class FakeKubelet:
    """A node's kubelet over `folder`, which becomes its `/var/lib/kubelet`. Random choices come from `seed`."""

    def __init__(self, folder: Path, *, seed: int = 0, timeouts: Timeouts | None = None) -> None:
        self.plugins_folder = folder / "device-plugins"
        self.registration_socket = self.plugins_folder / "kubelet.sock"
        self.pod_resources_socket = folder / "pod-resources" / "kubelet.sock"
        self.checkpoint = self.plugins_folder / "kubelet_internal_checkpoint"
        self.doors = FaultPoints()
        self.pods: dict[str, KubeletPod] = {}
        """By uid, in the order of their admission; removed ones stay, as removed."""
        self.history = KubeletHistory()
        self._hidden = folder / "own"
        self._random = Random(seed)
        self._timeouts = timeouts or Timeouts()
        self._admitting = asyncio.Lock()
        self._changed = asyncio.Event()
        self._lives = 0
        self._life: Life | None = None

    async def __aenter__(self) -> Self:
        await self.is_up()
        await self.readmit()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._life:
            await self.kill()

    async def is_up(self) -> None:
        """Start the process: read the checkpoint, wipe the sockets of plugins, serve. No pod is admitted again."""
        for folder in (self.plugins_folder, self.pod_resources_socket.parent, self._hidden):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.plugins_folder.iterdir():
            if path.is_socket() and path != self.registration_socket:  # `serve` replaces its own
                path.unlink()
        self._life = await self._begin()
        self._changed.set()

    async def kill(self) -> None:
        """End the process as kill -9 does: connections break, socket files stay, nothing is written."""
        life, self._life = self.life, None
        await life.registrar.close()
        for server in life.servers:
            await server.stop(None)

    async def restart(self) -> None:
        """Kill and start, while containers run on; pods are admitted again before a plugin can be back."""
        await self.kill()
        await self.is_up()
        await self.readmit()

    async def reboot(self) -> None:
        """The node restarts: nothing runs, sockets are gone, the checkpoint remains. The test then calls `readmit`."""
        await self.kill()
        for state in (state for pod in self.pods.values() for state in pod.states.values()):
            state.is_running = False
        await self.is_up()

    async def readmit(self) -> None:
        """What kubelet does at its start: every active pod passes admission again, or fails for good."""
        for pod in self.active():
            await self._admit(pod)
        self.life.admission.is_ready = True

    async def admit(self, pod: KubeletPod) -> bool:
        """Take a pod that was bound to this node; False: it is Failed, with reason and message."""
        return await self._admit(pod)

    async def admit_shuffled(self, pods: Iterable[KubeletPod]) -> None:
        """Admit the pods in random order: creation times and binds need not agree."""
        chosen = list(pods)
        for pod in self._random.sample(chosen, len(chosen)):
            await self.admit(pod)

    async def start(
        self, pod: KubeletPod, container: str, *, image_env: Mapping[str, str] | None = None
    ) -> StartedContainer:
        """Start a container, for the first time or again; `StartRefusedError` when it waits instead."""
        outcome = await self.try_start(pod, container, image_env=image_env)
        if isinstance(outcome, WaitingContainer):
            raise StartRefusedError(outcome)
        return outcome

    async def try_start(
        self, pod: KubeletPod, container: str, *, image_env: Mapping[str, str] | None = None
    ) -> StartedContainer | WaitingContainer:
        """Start a container and return the result; a second try after a refusal is another call."""
        if not pod.is_active or pod.uid not in self.pods or pod.states[container].is_running:
            raise ValueError(f"pod {pod.name}: container {container} is not there to be started ({pod.phase})")
        return await self.life.starter.start(pod, pod.container(container), image_env or {})

    def exit(self, pod: KubeletPod, container: str) -> None:
        """The container ends; `start` restarts it."""
        pod.states[container].is_running = False

    def finish(self, pod: KubeletPod, phase: str = "Succeeded") -> None:
        """All containers ended for good: the pod is no longer active, its ids come free."""
        pod.phase = phase
        for state in pod.states.values():
            state.is_running = False

    def remove(self, pod: KubeletPod) -> None:
        """The pod was deleted and its containers are gone; its ids are freed at the next look-up."""
        pod.is_removed = True
        for state in pod.states.values():
            state.is_running = False

    async def registered(self, resource: str, *, times: int = 1, timeout_seconds: float = 10) -> None:
        """Wait until a plugin of this resource is connected and healthy, after so many registrations over all."""

        def is_registered() -> bool:
            endpoint = self._life and self._life.registrar.endpoints.get(resource)
            count = sum(each.resource == resource for each in self.history.registrations)
            return bool(endpoint and not endpoint.is_stopped and self.allocatable(resource)) and count >= times

        await self.until(is_registered, timeout_seconds=timeout_seconds)

    async def until(self, predicate: Callable[[], bool], *, timeout_seconds: float = 10) -> None:
        """Wait until `predicate` is true; it is checked at every registration, list and end of a stream."""

        async def wait() -> None:
            while not predicate():
                self._changed.clear()
                await self._changed.wait()

        async with asyncio.timeout(timeout_seconds):
            await wait()

    async def cut_connections(self, resource: str) -> None:
        """Break ListAndWatch of the newest plugin from this side, and wait until its devices are unhealthy."""
        await self.life.registrar.cut(resource)
        await self.until(lambda: self.allocatable(resource) == 0)

    def drop_stopped(self) -> None:
        """The grace period (five minutes) of stopped plugins is over: their resources leave the node's status."""
        for resource, endpoint in list(self.life.registrar.endpoints.items()):
            if endpoint.is_stopped:
                del self.life.registrar.endpoints[resource]
                self.life.books.drop_resource(resource)
        self.life.books.write(self.checkpoint)

    @property
    def life(self) -> Life:
        if self._life is None:
            raise RuntimeError("kubelet is down")
        return self._life

    def active(self) -> list[KubeletPod]:
        return [pod for pod in self.pods.values() if pod.is_active]

    def allocatable(self, resource: str) -> int:
        return len(self.life.books.healthy.get(resource, ()))

    def capacity(self, resource: str) -> int:
        return self.allocatable(resource) + len(self.life.books.unhealthy.get(resource, ()))

    def healthy_ids(self, resource: str) -> frozenset[str]:
        return frozenset(self.life.books.healthy.get(resource, ()))

    def device_ids(self, pod: KubeletPod, container: str) -> frozenset[str]:
        """The ids of a container, over its resources."""
        resources = self.life.books.held_by(pod.uid, container).values()
        return frozenset[str]().union(*(held.ids for held in resources))

    def calls_of(self, method: str) -> list[PluginCall]:
        return [call for call in self.history.calls if call.method == method]

    async def _admit(self, pod: KubeletPod) -> bool:
        async with self._admitting:
            self.pods.setdefault(pod.uid, pod)
            try:
                for container in pod.containers:
                    await self.life.admission.allocate(pod, container)
            except DeviceError as error:
                pod.phase, pod.reason = "Failed", "UnexpectedAdmissionError"
                pod.message = f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
                return False
            return True

    async def _begin(self) -> Life:
        books = read_checkpoint(self.checkpoint)
        write = partial(books.write, self.checkpoint)
        registrar = Registrar(
            self.plugins_folder,
            books,
            self.doors,
            self._timeouts,
            self.history,
            changed=partial(self._note_change, write),
        )
        for resource in books.healthy:
            registrar.stop_unknown(resource)
        endpoints = registrar.endpoints
        admission = FakeAdmission(books, endpoints, self._random, active=self._active_uids, checkpoint=write)
        starter = Starter(books, endpoints, admission, self._random, self._timeouts.pre_start_seconds)
        lister = Lister(books, admission, self.doors, self._random, active=self.active)
        self._lives += 1
        servers = (
            await self._serve(
                self.pod_resources_socket, "l", partial(add_PodResourcesListerServicer_to_server, lister)
            ),
            await self._serve(self.registration_socket, "r", partial(add_RegistrationServicer_to_server, registrar)),
        )
        return Life(books, registrar, admission, starter, servers)

    async def _serve(self, path: Path, letter: str, add: Callable[[grpc.aio.Server], None]) -> grpc.aio.Server:
        return await serve(path, self._hidden / f"{letter}{self._lives}", add)

    def _active_uids(self) -> list[str]:
        return [pod.uid for pod in self.active()]

    def _note_change(self, write: Callable[[], None]) -> None:
        write()
        self._changed.set()
