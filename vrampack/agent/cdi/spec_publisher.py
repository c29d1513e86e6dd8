"""The life of a spec: written when its container is about to start, read by the runtime, deleted once the container exists.

    PreStart --write, rename--> in the folder --the runtime has read it--> the container may be created
                                    |--its id shows in the pod's status, the pod ends, its card is gone, or LIFETIME_SECONDS--> deleted

A running container no longer needs its spec. Deleting it closes a gap: after its own restart, kubelet starts containers
without asking until it knows this plugin again, and without a spec none of them starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.read_watch import FileRead, ReadWatch
from vrampack.agent.cdi.runtime_probe import ContainerRuntime
from vrampack.agent.cdi.spec_document import CdiSpec
from vrampack.agent.cdi.spec_folder import SpecFolder
from vrampack.agent.metrics import AgentMetrics

log = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""For twenty containers at once, a runtime takes a second on two busy cores to read a folder of hundreds of specs."""
LIFETIME_SECONDS = 150.0
"""By then the runtime's attempt to create the container is over, and kubelet asks again before the next one."""
MIN_SECONDS = 2.0
"""A container id that shows earlier may be the previous container's, which ended before its start was reported."""
REVIEW_SECONDS = 1.0
ENDED_PODS_KEPT = 1000
"""By then a start that began before its pod ended is over."""


@dataclass(frozen=True, slots=True)
class SpecOfContainer:
    """A spec, and the container that it is for."""

    name: str
    spec: CdiSpec
    pod_uid: str
    container: str
    cards: frozenset[str] = frozenset()
    """The uuids of the cards that it gives."""


@dataclass(frozen=True, slots=True)
class _LivingSpec:
    owner: SpecOfContainer
    former_id: str
    """The id of the previous container, as the API server showed it."""
    written_at: float
    written_with: frozenset[str]
    """The names of all specs of the same start: one container uses one of them, and none uses the others."""


class SpecPublisher:
    """Writes specs, waits until they are read, and deletes them."""

    def __init__(
        self,
        folder: SpecFolder,
        watch: ReadWatch,
        metrics: AgentMetrics,
        *,
        get_container_id: Callable[[str, str], str],
        is_missing: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        """`get_container_id` takes a pod uid and a container name; empty while the API server shows no id.

        `is_missing`: whether the card with this uuid is gone.
        """
        self._folder = folder
        self._watch = watch
        self._metrics = metrics
        self._get_container_id = get_container_id
        self._is_missing = is_missing
        self._clock = clock
        self._living: dict[str, _LivingSpec] = {}
        self._has_living = asyncio.Event()
        self._ended_pods: deque[str] = deque(maxlen=ENDED_PODS_KEPT)
        self.runtime = ContainerRuntime("")
        self.has_been_read = False
        """Whether any of our specs was read since this agent started."""

    async def publish_specs(self, specs: Sequence[SpecOfContainer]) -> None:
        """Write specs; returns when the runtime has read them. Raises `CdiError`; then none of them is left."""
        if any(each.pod_uid in self._ended_pods for each in specs):
            raise CdiError("its pod has ended")
        reads: list[FileRead | None] = []
        names = frozenset(each.name for each in specs)
        try:
            for each in specs:
                reads.append(self._folder.write_spec(each.name, msgspec.json.encode(each.spec)))
                self._note_written(each, names)
            with self._metrics.time_start_wait("runtime"):
                await self._wait_for_reads(reads)
        except BaseException:
            for each in specs:
                self._remove(each.name)
            raise
        finally:
            for read in reads:
                if read is not None:
                    self._watch.forget_file(read)

    async def run(self) -> None:
        """Delete what is no longer needed, until cancelled."""
        while True:
            await self._has_living.wait()
            await asyncio.sleep(REVIEW_SECONDS)
            self.remove_used_specs()

    def remove_used_specs(self) -> None:
        """Delete the specs of a start whose container exists, of a card that is gone, and those that were not used in time."""
        for living in list(self._living.values()):
            age = self._clock() - living.written_at
            shown = self._get_container_id(living.owner.pod_uid, living.owner.container)
            is_created = bool(shown) and shown != living.former_id
            is_gone = any(self._is_missing(uuid) for uuid in living.owner.cards)
            if age >= LIFETIME_SECONDS or is_gone or (is_created and age >= MIN_SECONDS):
                for name in living.written_with:
                    self._remove(name)

    def forget_pod(self, uid: str) -> None:
        """The pod has ended or is deleted: its containers no longer start, and no status will show their ids."""
        self._ended_pods.append(uid)
        for name in [name for name, living in self._living.items() if living.owner.pod_uid == uid]:
            self._remove(name)

    def remove_all_specs(self) -> None:
        """Delete all: at the start those of an earlier agent; at the end, so that no container starts without asking."""
        count = self._folder.remove_all_specs()
        self._living.clear()
        self._has_living.clear()
        if count:
            log.info("specs removed count=%d", count)

    def _note_written(self, owner: SpecOfContainer, names: frozenset[str]) -> None:
        shown = self._get_container_id(owner.pod_uid, owner.container)
        self._living[owner.name] = _LivingSpec(owner, shown, self._clock(), names)
        self._has_living.set()

    def _remove(self, name: str) -> None:
        self._folder.remove_spec(name)
        self._living.pop(name, None)
        if not self._living:
            self._has_living.clear()

    async def _wait_for_reads(self, reads: Sequence[FileRead | None]) -> None:
        started = time.monotonic()
        ends_at = started + READ_SECONDS
        for read in reads:
            if read is None:
                self._metrics.spec_reads.labels("unwatched").inc()
            elif await read.wait_for_read(max(ends_at - time.monotonic(), 0)):
                self.has_been_read = True
                self._metrics.spec_reads.labels("read").inc()
            else:
                self._record_unread()
        self._metrics.spec_read_seconds.observe(time.monotonic() - started)

    def _record_unread(self) -> None:
        """A runtime that does not read a spec creates the container without its card, or fails. kubelet retries later."""
        if self.has_been_read:
            self._metrics.spec_reads.labels("timeout").inc()
            raise CdiError(f"{self.runtime} has not read the CDI spec within {READ_SECONDS:g} s")
        self._metrics.spec_reads.labels("refused").inc()
        raise CdiError(
            f"{self.runtime} has read no CDI spec of this agent: it would create the container without its card. "
            "Switch CDI on in its configuration (containerd 1.7: enable_cdi), or set injection: exact"
        )
