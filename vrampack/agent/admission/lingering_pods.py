"""Pods that the API server no longer has, or shows as finished, while their cgroup still exists on the node.

    ended, by the API server --> lingering: its cards stay held in the fence --cgroup gone--> released

When a pod is deleted by force, the API server forgets it at once; its processes end later, if they can, and hold the card's
memory until then. So the pod's cards are free when kubelet has removed its cgroup, which it does last. A cgroup that stays
without a process holds no memory, and the agent waits for it only for a while. If the agent does not see the node's
cgroups, or kubelet creates none for pods, there is nothing to wait for, and only the API server's view counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vrampack.agent.admission.fence import Fence
from vrampack.agent.limits.cgroups import CgroupTree, has_processes

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5
"""How often to check while some pod lingers: a few `stat` calls for each."""
EMPTY_SECONDS = 60.0
"""A cgroup without a process counts as gone after this. Not at once: kubelet may be about to create a container in it."""
OVERDUE_SECONDS = 60.0
"""A pod that lingers longer is reported. kubelet removes a cgroup within seconds of the last process."""


@dataclass(slots=True)
class _LingeringPod:
    name: str
    since: float
    empty_since: float | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class _PodRemains:
    """What is left of a pod on the node."""

    cgroup: Path | None
    has_processes: bool


class LingeringPods:
    """The lingering pods of one node. `run` runs until cancelled."""

    def __init__(
        self, fence: Fence, cgroups: CgroupTree, *, on_overdue: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`on_overdue` is called once, with a text, for each pod that lingers too long."""
        self._fence = fence
        self._cgroups = cgroups
        self._on_overdue = on_overdue
        self._clock = clock
        self._lingering: dict[str, _LingeringPod] = {}
        self._added = asyncio.Event()
        self._released = asyncio.Event()
        """Replaced at each release."""
        self.waiting_count = 0
        """Starts that wait for a release."""

    def add_pod(self, uid: str, name: str) -> None:
        """The API server no longer has it, or shows it as finished. It starts no more containers."""
        if uid not in self._lingering and self._fence.mark_lingering(uid, name):
            self._lingering[uid] = _LingeringPod(name, self._clock())
            self._added.set()

    async def restore_pods(self, units_by_pod: Mapping[str, Mapping[str, int]]) -> None:
        """Adopt pods that kubelet had and the API server lacks, with their units by card, if they are still on the node."""
        if not await asyncio.to_thread(self._cgroups.has_pods_folder):
            log.warning(
                "pod cgroups not visible effect=%r", "a deleted pod's cards are free when the API server says so"
            )
        for uid, remains in (await asyncio.to_thread(self._find_remains, units_by_pod)).items():
            if remains.cgroup is not None:
                self._fence.hold_units(uid, units_by_pod[uid])
                self.add_pod(uid, uid)
                log.warning("deleted pod still on the node uid=%s cgroup=%s", uid, remains.cgroup)

    async def run(self) -> None:
        """Check their cgroups and release the pods that are gone, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS if self._lingering else None):
                    await self._added.wait()
            except TimeoutError:
                log.debug("checking lingering pods count=%d", len(self._lingering))
            self._added.clear()
            await self.check_pods()

    async def check_pods(self) -> None:
        """Check all of them once."""
        try:
            found = await asyncio.to_thread(self._find_remains, tuple(self._lingering))
        except OSError as error:  # a cgroup that cannot be read is not gone
            log.warning("lingering pods not checked error=%s", error)
            return
        for uid, remains in found.items():
            if self._is_over(self._lingering[uid], remains):
                self._release_pod(uid)
            else:
                self._tell_if_overdue(self._lingering[uid], remains)

    async def wait_for_release(self, seconds: float) -> bool:
        """Wait until one of them is gone; False if that takes longer, or if there are none."""
        if not self._lingering or seconds <= 0:
            return False
        self.waiting_count += 1
        try:
            async with asyncio.timeout(seconds):
                await self._released.wait()
        except TimeoutError:
            return False
        finally:
            self.waiting_count -= 1
        return True

    def _find_remains(self, uids: Iterable[str]) -> dict[str, _PodRemains]:
        found = {uid: self._cgroups.find_pod_cgroup(uid) for uid in uids}
        return {uid: _PodRemains(folder, folder is not None and has_processes(folder)) for uid, folder in found.items()}

    def _is_over(self, pod: _LingeringPod, remains: _PodRemains) -> bool:
        if remains.cgroup is None:
            return True
        now = self._clock()
        pod.empty_since = None if remains.has_processes else pod.empty_since if pod.empty_since is not None else now
        return pod.empty_since is not None and now - pod.empty_since >= EMPTY_SECONDS

    def _release_pod(self, uid: str) -> None:
        pod = self._lingering.pop(uid)
        self._fence.release_pod(uid)
        if pod.is_told:
            log.info("lingering pod gone pod=%s uid=%s", pod.name, uid)
        released, self._released = self._released, asyncio.Event()
        released.set()

    def _tell_if_overdue(self, pod: _LingeringPod, remains: _PodRemains) -> None:
        if pod.is_told or self._clock() - pod.since < OVERDUE_SECONDS:
            return
        pod.is_told = True
        text = (
            f"{pod.name} is deleted and its cgroup {remains.cgroup} still exists: "
            "its cards stay held until that is gone"
        )
        log.warning("deleted pod still on the node pod=%s cgroup=%s", pod.name, remains.cgroup)
        self._on_overdue(text)
