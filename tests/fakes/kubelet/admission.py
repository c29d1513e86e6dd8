"""Which devices a container gets: choosing ids, GetPreferredAllocation, Allocate, in kubelet's order.

Allocation is per container and per resource, one container request in each call. Where kubelet walks a Go map (any
order), this walks in an order of the seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from tests.fakes.kubelet.books import AllocatedDevices, DeviceCheckpoint
from tests.fakes.kubelet.endpoints import PluginEndpoint
from tests.fakes.kubelet.errors import DeviceError
from tests.fakes.kubelet.pods import KubeletContainer, KubeletPod

Reusable = dict[str, set[str]]


class FakeAdmission:
    """One life of kubelet's device allocation. Only one pod is admitted at a time."""

    def __init__(
        self,
        books: DeviceCheckpoint,
        endpoints: dict[str, PluginEndpoint],
        random: Random,
        *,
        active: Callable[[], Collection[str]],
        checkpoint: Callable[[], None],
    ) -> None:
        self._books = books
        self._endpoints = endpoints
        self._random = random
        self._active = active
        self._checkpoint = checkpoint
        self._reusable: dict[str, Reusable] = {}
        self.is_ready = False
        """All sources of pods were read: until then pods that are gone keep their ids, and running containers pass."""

    async def allocate(self, pod: KubeletPod, container: KubeletContainer) -> None:
        """Allocate the devices of `container`; call it in the pod's order. Ids of init containers are reused."""
        reusable = self._reusable.get(pod.uid, {})
        self._reusable = {pod.uid: reusable}
        for resource, needed in container.limits.items():
            if self._books.knows(resource):
                self.collect()
                await self._allocate(pod, container, resource, needed, reusable.get(resource, set()))
        for resource, held in self._books.held_by(pod.uid, container.name).items():
            ids = reusable.setdefault(resource, set())
            reusable[resource] = ids | held.ids if container.kind == "init" else ids - held.ids

    def collect(self) -> None:
        """Free the ids of pods that are gone."""
        if self.is_ready:
            self._books.forget_all_but(self._active())

    async def _allocate(
        self, pod: KubeletPod, container: KubeletContainer, resource: str, needed: int, reusable: Collection[str]
    ) -> None:
        ids = await self._choose(pod, container, resource, needed, reusable)
        if not ids:
            return
        try:
            answer = await self._endpoint(resource).allocate(self._shuffled(ids))
        except DeviceError:
            self._books.recount()
            raise
        self._books.allocate_devices(pod.uid, container.name, resource, AllocatedDevices(frozenset(ids), answer))
        self._checkpoint()

    async def _choose(
        self, pod: KubeletPod, container: KubeletContainer, resource: str, needed: int, reusable: Collection[str]
    ) -> set[str]:
        """Choose ids. Empty if there is nothing to allocate: the container has its devices or is running with them."""
        held = self._books.held_by(pod.uid, container.name).get(resource)
        if held and len(held.ids) != needed:
            raise DeviceError(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(held.ids)} to {needed}"
            )
        if not self.is_ready and pod.states[container.name].is_running:
            return set()
        self._check_health(resource, held.ids if held else frozenset())
        if held or not needed:
            return set()
        return await self._choose_free(resource, needed, reusable)

    def _check_health(self, resource: str, held: frozenset[str]) -> None:
        """Checked even when all devices are held already: this is what fails pods after a reboot."""
        healthy = self._books.healthy.get(resource)
        if healthy is None:
            raise DeviceError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise DeviceError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy >= held:
            raise DeviceError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    async def _choose_free(self, resource: str, needed: int, reusable: Collection[str]) -> set[str]:
        """Reused ids first, and without asking the plugin; then those it prefers; then any."""
        chosen: set[str] = set()
        if self._take(resource, chosen, reusable, needed):
            return chosen
        free = self._books.healthy[resource] - self._books.taken.get(resource, set())
        if len(free) < needed - len(chosen):
            raise DeviceError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed - len(chosen)}, Available: {len(free)}"
            )
        preferred = await self._preferred(resource, free | chosen, chosen, needed)
        if not self._take(resource, chosen, preferred & free, needed):
            self._take(resource, chosen, free, needed)
        return chosen

    def _take(self, resource: str, chosen: set[str], among: Collection[str], needed: int) -> bool:
        """Mark ids as taken until there are enough; what is marked stays so when a later step fails."""
        for device in self._shuffled(set(among) - chosen):
            if len(chosen) == needed:
                break
            self._books.taken.setdefault(resource, set()).add(device)
            chosen.add(device)
        return len(chosen) == needed

    async def _preferred(self, resource: str, available: set[str], included: set[str], size: int) -> set[str]:
        endpoint = self._endpoint(resource)
        if endpoint.options is None or not endpoint.options.get_preferred_allocation_available:
            return set()
        try:
            return await endpoint.preferred(self._shuffled(available), self._shuffled(included), size)
        except DeviceError as error:
            raise DeviceError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error

    def _endpoint(self, resource: str) -> PluginEndpoint:
        if resource not in self._endpoints:
            raise DeviceError(f"unknown Device Plugin {resource}")
        return self._endpoints[resource]

    def _shuffled(self, ids: Collection[str]) -> list[str]:
        return self._random.sample(sorted(ids), len(ids))
