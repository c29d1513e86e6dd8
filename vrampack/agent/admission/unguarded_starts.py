"""Containers that run without their limit: their runtime handler did not call the hook, or kubelet could not ask the fence.

    hook --container id--> record_answer
    the pod's status --container id--> check_containers: no answer was given for it --> event, metric, /limits

The hook asks before a container's first process runs, and kubelet reports the id afterwards. So a container that a status shows
as started and that has no answer never passed the hook. This agent does not know what the agent before it answered, so it leaves
out containers that started before, or shortly after, it began to listen.

Start times are by kubelet's wall clock, which may be set back meanwhile. Then what counts is where that moment lies on the
clock as it is now, and containers that were shown before it are left out by their ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.events import AgentEventReason
from vrampack.agent.metrics import AgentMetrics
from vrampack.cards.pod import Pod

log = logging.getLogger(__name__)

PREDECESSOR_SECONDS = 6.0
"""A hook waits 5 s for its answer, and kubelet rounds down to a second: until then the previous agent may have answered."""
GetLimits: TypeAlias = Callable[[str, str], Mapping[str, int] | None]
"""From a pod's uid and a container's name to MiB by card; None for an unknown container."""
MAX_UNSHOWN = 1000
"""Answers that are kept for containers that no status has shown yet: about twice as many as a node runs containers."""
MAX_ANSWERS = 10_000
"""Answers that are kept in all: far more than the containers that one node can run."""


class PodEventSink(Protocol):
    """See `kube/events.py`."""

    def record_pod_event(self, pod: Pod, reason: str, text: str, *, is_warning: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class UnguardedContainer:
    """One container of a pod of this node."""

    pod: LocalPod
    container: str
    container_id: str


class UnguardedStarts:
    """Of one node."""

    def __init__(
        self,
        events: PodEventSink,
        metrics: AgentMetrics,
        *,
        needs_hook: Callable[[], bool],
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`now` is the clock of kubelet's statuses: seconds since the epoch. `clock` is monotonic."""
        self._events = events
        self._metrics = metrics
        self._needs_hook = needs_hook
        self._now = now
        self._clock = clock
        self._listening_since: tuple[float, float] | None = None
        """By `now` and by `clock`."""
        self._earlier_ids: set[str] = set()
        """Containers that ran before those that this agent judges."""
        self._allowed_ids: dict[str, bool] = {}
        """In the order of the answers, and whether a status has shown the container since."""
        self._found: dict[str, UnguardedContainer] = {}

    def record_unfenced_start(self, pod: LocalPod) -> None:
        """The pod started while kubelet could not ask this agent."""
        text = "it was started while kubelet could not ask this agent whether it may start; its memory is counted now"
        self._events.record_pod_event(pod.pod, AgentEventReason.UNGUARDED_START, text)

    def record_answer(self, container_id: str) -> None:
        """The hook was told that this container may start."""
        self._allowed_ids[container_id] = False
        if len(self._allowed_ids) > MAX_ANSWERS:
            # No check forgets them where no limit needs the hook, and an installed hook asks there too.
            del self._allowed_ids[next(iter(self._allowed_ids))]

    def list_containers(self) -> tuple[UnguardedContainer, ...]:
        """The unguarded containers that ran at the last check."""
        return tuple(self._found.values())

    def check_containers(self, pods: Iterable[LocalPod], get_limits_mib: GetLimits) -> None:
        """Compare what runs with what was answered; each unguarded container is reported once."""
        self._found = self._find_unguarded(pods, get_limits_mib) if self._needs_hook() else {}
        self._metrics.unguarded_containers.set(len(self._found))

    def _find_unguarded(self, pods: Iterable[LocalPod], get_limits_mib: GetLimits) -> dict[str, UnguardedContainer]:
        if self._listening_since is None:
            self._listening_since = self._now(), self._clock()
        running = {
            each.container_id: each
            for pod in pods
            for name, found in pod.container_ids.items()
            for each in [UnguardedContainer(pod, name, found.rpartition("/")[2])]
        }
        self._earlier_ids &= running.keys()
        if self._clock() < self._listening_since[1] + PREDECESSOR_SECONDS:
            self._earlier_ids |= running.keys()
        first_judged = self._find_first_judged(*self._listening_since)
        found = {key: each for key, each in running.items() if self._is_unguarded(each, first_judged, get_limits_mib)}
        for key in found.keys() - self._found.keys():
            self._report_container(found[key])
        self._forget_answers(running.keys())
        return found

    def _forget_answers(self, running: AbstractSet[str]) -> None:
        """Forget answers for containers that were shown and are gone, and the oldest for containers that never started."""
        for each in [each for each, was_shown in self._allowed_ids.items() if was_shown and each not in running]:
            del self._allowed_ids[each]
        self._allowed_ids.update(dict.fromkeys(self._allowed_ids.keys() & running, True))
        unshown = [each for each, was_shown in self._allowed_ids.items() if not was_shown]
        for each in unshown[:-MAX_UNSHOWN]:
            del self._allowed_ids[each]

    def _find_first_judged(self, listening_since: float, by_clock: float) -> tuple[float, float]:
        """The first start time that is judged: as the wall clock was then, and as it is now if it was set back."""
        since_now = self._now() - (self._clock() - by_clock)
        return listening_since + PREDECESSOR_SECONDS, min(listening_since, since_now) + PREDECESSOR_SECONDS

    def _is_unguarded(
        self, container: UnguardedContainer, first_judged: tuple[float, float], get_limits_mib: GetLimits
    ) -> bool:
        """Whether it has a limit that was never put in force."""
        if container.container_id in self._allowed_ids:
            return False
        started_at = container.pod.started_at.get(container.container)
        first, first_if_new = first_judged
        # Without a start time it waits for its first start or the next one: the id is that of a container that is gone.
        if started_at is None or started_at < (first if container.container_id in self._earlier_ids else first_if_new):
            return False
        return bool(get_limits_mib(container.pod.pod.uid, container.container))

    def _report_container(self, found: UnguardedContainer) -> None:
        named = found.pod.runtime_class
        handler = f"the handler of runtime class {named}" if named else "the default runtime handler"
        text = (
            f"container {found.container} runs without its limit: {handler} did not call vrampack-hook; "
            "delete the pod, and let that handler call the hook or put its class into runtime_classes.refuse"
        )
        log.error(
            "unguarded start pod=%s container=%s runtime_class=%s", found.pod.pod, found.container, named or "default"
        )
        self._events.record_pod_event(found.pod.pod, AgentEventReason.UNGUARDED_START, text)
