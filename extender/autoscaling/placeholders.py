"""Makes autoscalers add a node where the sums of one fit a pod and no card does: by a placeholder, a pod that only a new node can take.

    short for 30 s --> placeholder --no longer short, a new node came, or 15 min--> deleted
           ^                                                                          |
           '-------------- still short: not before 5 min, later an hour --------------'

There is one for each shape of pods at a time (`card_shortages.py`), and its name is that of the shape: another extender goes on from the
placeholders that there are. Where a new node has an agent, the placeholder must go: Karpenter would make one more node for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.autoscaling.card_shortages import CardShortage, find_shortages, get_age_key
from extender.autoscaling.node_marks import parse_time
from extender.autoscaling.node_rules import NodeRules
from extender.autoscaling.placeholder_pods import (
    UNUSABLE_LABELS,
    Json,
    build_placeholder,
    exclude_agents,
    exclude_hosts,
)
from extender.autoscaling.plan_pace import compute_pause
from extender.autoscaling.write_turn import WriteTurn
from extender.events import EventReason, ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.settings import AutoscalingSettings
from extender.state.ledger import Ledger
from vrampack.backoff import Backoff
from vrampack.cards.pod import Pod
from vrampack.cards.well_known import PLACEHOLDER_NAMESPACE
from vrampack.kube.answers import decode_answer
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError, UnsentError
from vrampack.kube.examined_objects import ExaminedPod
from vrampack.kube.node_filters import find_node_obstacle, sum_requests
from vrampack.kube.node_reader import read_node_state
from vrampack.kube.objects import PodSpec

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
WATCH_INTERVAL_SECONDS = 0.1
"""The same while there is a placeholder: Karpenter looks at pods that wait each 10 s, and a second after they change."""
SHORT_SECONDS = 30.0
"""For so long no card must have had room: pods end, and others are evicted."""
MAX_SECONDS = 900.0
"""Karpenter gives up a node that has not come after 15 minutes."""
HOUR_SECONDS = 3600.0
CALL_SECONDS = 5.0
MAX_CHECKED_NODES = 16
"""For each a node and its pods are read."""
REFUSED_SECONDS = 5.0
"""After a refusal, which the next try may get as well: the right may be missing."""
LOOK_INTERVAL_SECONDS = 2.0
"""Between two pods that are read, each with its nodes."""
CHOICES_PER_SLICE = 1000
"""Pods between two yields to the event loop: less than 1 ms."""
URGENT = ("node_came", "expired")
"""Whatever the next plan says."""
AGAIN = Backoff(first_seconds=300.0, longest_seconds=3600.0)
MESSAGE = "no node: the sums of some fit such pods, and no card does (docs/autoscalers.md)"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}
"""What a scheduler says that finds no node: autoscalers look at no other pods."""


class _Attempt(NamedTuple):
    """The last placeholder of a shape."""

    pod_uid: str
    """The pod that it was made for. When it is bound, a node has helped."""
    again_at: float
    """When there may be another one while this pod waits."""
    made: int
    """How many have been made meanwhile."""


class _Look(NamedTuple):
    """What is known of a pod that was read."""

    again_at: float = 0.0
    """Until then it is another one's turn."""
    times: int = 0
    """It was read so often."""


NEVER = _Look()
LAST_KEY = (chr(0x10FFFF), "")
"""After that of every pod."""


class Placeholders:
    """It is fed every pod that asks for cards."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        ledger: Ledger,
        rules: NodeRules,
        api: Api,
        events: ExtenderEventRecorder,
        metrics: ExtenderMetrics,
        *,
        turn: WriteTurn,
        settings: AutoscalingSettings,
        clock: Callable[[], float],
        cpu_clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` and `cpu_clock` count seconds; `now` is Unix time."""
        self._ledger = ledger
        self._rules = rules
        self._api = api
        self._events = events
        self._results = metrics.placeholders
        self._turn = turn
        self._settings = settings
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._now = now
        self._standing: dict[str, Pod] = {}
        """By uid: all placeholders that the API server shows."""
        self._shortages: Mapping[str, CardShortage] = {}
        self._short_since: Mapping[str, float] = {}
        self._next_plan_at = 0.0
        self._made_at: deque[float] = deque()
        """In the last hour. A restart forgets them."""
        self._attempts: dict[str, _Attempt] = {}
        """By shape."""
        self._looks: dict[str, _Look] = {}
        """By uid of the pod."""
        self._next_look_at = 0.0
        self._next_urgent_at = 0.0
        self._refused_until = 0.0

    def update_pod(self, pod: Pod, spec: PodSpec) -> None:  # noqa: ARG002 - the shape of a watcher
        if pod.is_placeholder and pod.namespace == PLACEHOLDER_NAMESPACE:
            self._standing[pod.uid] = pod
        else:
            self.remove_pod(pod.uid)

    def remove_pod(self, uid: str) -> None:
        self._standing.pop(uid, None)

    def keep_pods(self, uids: Collection[str]) -> None:
        self._standing = {uid: pod for uid, pod in self._standing.items() if uid in uids}

    def needs_lease(self) -> bool:
        """Whether there may be something to make or to delete."""
        return self._is_wanted or bool(self._standing)

    @property
    def _is_wanted(self) -> bool:
        return self._settings.placeholders != "never"

    async def run(self) -> None:
        """Make and delete placeholders, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS if self._standing else CHECK_INTERVAL_SECONDS)
            await self.check_shapes()

    async def check_shapes(self) -> None:
        """One round."""
        if not self._may_write():
            return
        await self._delete_urgent()
        await self._plan()
        for pod in self._list_live():
            result = self._find_end(pod)
            if result and self._may_write():
                await self._delete(pod, result)
            elif not pod.failed_attempt and self._may_write():
                await self._mark(pod)
        await self._make_next()

    def _may_write(self) -> bool:
        return self._clock() >= self._refused_until and self._turn.may_write()

    async def _plan(self) -> None:
        now = self._clock()
        if not self._is_wanted:
            self._shortages = {}
        elif now >= self._next_plan_at:
            began = self._cpu_clock()
            self._shortages = await find_shortages(
                self._ledger, self._rules, self._pause, unusable_labels=UNUSABLE_LABELS[self._settings.placeholders]
            )
            self._next_plan_at = self._clock() + compute_pause(self._cpu_clock() - began)
        self._short_since = {name: self._short_since.get(name, now) for name in self._shortages}
        self._attempts = {
            name: each for name, each in self._attempts.items() if name in self._shortages or each.again_at > now
        }
        self._looks = {uid: each for uid, each in self._looks.items() if each.again_at > now - HOUR_SECONDS}

    async def _pause(self) -> None:
        """Between two slices of a plan, and before each node that is read."""
        await asyncio.sleep(0)
        if self._clock() >= self._next_urgent_at:
            await self._delete_urgent()

    async def _delete_urgent(self) -> None:
        """Those that no plan needs to be made for: a second after a node has come, Karpenter may make the next one."""
        self._next_urgent_at = self._clock() + WATCH_INTERVAL_SECONDS
        for pod in self._list_live():
            if (result := self._find_end(pod)) in URGENT and self._may_write():
                await self._delete(pod, result)

    def _list_live(self) -> list[Pod]:
        return [each for each in self._standing.values() if not each.is_terminating]

    def _find_end(self, pod: Pod) -> str:
        """Why the placeholder has to go; empty if it may stay."""
        shortage = self._shortages.get(pod.name)
        if shortage is None:
            return "served"
        if self._rules.has_new_node(shortage.shape.rules, pod.created_at):
            return "node_came"
        return "expired" if self._now() >= parse_time(pod.created_at) + MAX_SECONDS else ""

    def _may_make(self, name: str, shortage: CardShortage) -> bool:
        now = self._clock()
        while self._made_at and self._made_at[0] <= now - HOUR_SECONDS:
            self._made_at.popleft()
        attempt = self._find_attempt(shortage)
        again_at = 0.0 if attempt is None else attempt.again_at
        is_due = now >= max(again_at, self._short_since[name] + SHORT_SECONDS)
        return is_due and len(self._made_at) < self._settings.max_placeholders_per_hour

    async def _make_next(self) -> None:
        """For one pod at most: reading its nodes takes a while."""
        if self._clock() < self._next_look_at:
            return
        standing = {pod.name for pod in self._standing.values()}
        due = [each for name, each in self._shortages.items() if name not in standing and self._may_make(name, each)]
        if (choice := await self._choose(due)) and self._may_write():
            await self._make(*choice)

    async def _choose(self, due: Sequence[CardShortage]) -> tuple[CardShortage, Pod] | None:
        """The pod that has waited longest of those that were never read; then the one whose look is the longest ago."""
        chosen: tuple[CardShortage, Pod] | None = None
        first = (self._clock(), LAST_KEY)
        for count, (shortage, pod) in enumerate(((each, pod) for each in due for pod in each.pods.values()), start=1):
            if count % CHOICES_PER_SLICE == 0:
                await self._pause()
            rank = (self._looks.get(pod.uid, NEVER).again_at, get_age_key(pod))
            if rank <= first:
                first, chosen = rank, (shortage, pod)
        return chosen

    async def _make(self, shortage: CardShortage, pod: Pod) -> None:
        self._next_look_at = self._clock() + LOOK_INTERVAL_SECONDS
        looks = self._looks.get(pod.uid, NEVER).times
        self._looks[pod.uid] = _Look(self._clock() + AGAIN.first_seconds, looks + 1)
        try:
            placeholder = await self._build(shortage, pod, looks)
            if placeholder is None:
                return
            await self._create(shortage, pod, placeholder)
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(shortage.shape.name, error)
            return
        self._turn.note_success()
        self._results.labels("made").inc()
        log.info("placeholder made name=%s pod=%s nodes=%d", shortage.shape.name, pod, len(shortage.nodes))
        text = f"the sums of {len(shortage.nodes)} nodes fit it and no card does: placeholder {shortage.shape.name} asks for a node"
        self._events.record_pod_event(pod, EventReason.NODE_ASKED_FOR, text, is_warning=False)

    async def _create(self, shortage: CardShortage, pod: Pod, placeholder: Json) -> None:
        """Without an answer it may be there, so it counts. One that is refused does not, and makes no wait longer."""
        made = self._count_made(shortage)
        self._put_off(shortage, pod.uid, made=made + 1)
        self._made_at.append(self._clock())
        try:
            await self._api.create_pod(PLACEHOLDER_NAMESPACE, placeholder, timeout_seconds=CALL_SECONDS)
        except (RefusedError, UnsentError):
            self._made_at.pop()
            self._put_off(shortage, pod.uid, made=made)
            raise

    async def _build(self, shortage: CardShortage, pod: Pod, looks: int) -> Json | None:
        """None if the pod is bound or gone by now, if a new node may not do, or if an autoscaler adds one anyway."""
        body = await self._api.get_pod_bytes(pod.namespace, pod.name, timeout_seconds=CALL_SECONDS)
        if body is None:
            return None
        seen = decode_answer(body, ExaminedPod, f"get pod {pod}")
        if seen.metadata.uid != pod.uid or seen.spec.node_name:
            return None
        if seen.spec.depends_on_other_pods or seen.spec.has_resource_claims:
            return None
        if not await self._fits_by_sums(seen, shortage.nodes, looks):
            return None
        is_karpenter = self._settings.placeholders == "karpenter"
        hostnames = [self._rules.get_hostname(name) for name in shortage.nodes]
        exclusion = exclude_agents() if is_karpenter else exclude_hosts(hostnames)
        return build_placeholder(shortage.shape, sum_requests(seen.spec), exclusion)

    async def _fits_by_sums(self, pod: ExaminedPod, nodes: Sequence[str], looks: int) -> bool:
        """Whether some node passes the scheduler's own filters, CPU and main memory included, of those that are looked at this time."""
        first = looks * MAX_CHECKED_NODES % len(nodes)
        for name in nodes[first : first + MAX_CHECKED_NODES]:
            await self._pause()
            state = await read_node_state(self._api, name)
            if state is not None and not find_node_obstacle(pod, state.node, state.pods):
                return True
        return False

    async def _mark(self, pod: Pod) -> None:
        """As its scheduler would."""
        try:
            await self._api.patch_pod_condition(
                pod.namespace, pod.name, pod.uid, UNSCHEDULABLE, timeout_seconds=CALL_SECONDS
            )
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(pod.name, error)
            return
        self._turn.note_success()
        self._standing[pod.uid] = replace(pod, failed_attempt=MESSAGE)

    async def _delete(self, pod: Pod, result: str) -> None:
        shortage = self._shortages.get(pod.name)
        if shortage is not None:
            attempt = self._find_attempt(shortage)
            uid = min(shortage.pods.values(), key=get_age_key).uid if attempt is None else attempt.pod_uid
            self._put_off(shortage, uid, made=max(1, self._count_made(shortage)))
        try:
            await self._api.delete_pod(pod.namespace, pod.name, pod.uid, timeout_seconds=CALL_SECONDS)
        except (RefusedError, NoAnswerError) as error:
            self._note_failure(pod.name, error)
            return
        self._turn.note_success()
        self.remove_pod(pod.uid)
        self._results.labels(result).inc()
        log.info("placeholder deleted name=%s result=%s", pod.name, result)

    def _find_attempt(self, shortage: CardShortage) -> _Attempt | None:
        """The last one, if the pod that it was made for still waits."""
        attempt = self._attempts.get(shortage.shape.name)
        return attempt if attempt is not None and attempt.pod_uid in shortage.pods else None

    def _count_made(self, shortage: CardShortage) -> int:
        attempt = self._find_attempt(shortage)
        return 0 if attempt is None else attempt.made

    def _put_off(self, shortage: CardShortage, pod_uid: str, *, made: int) -> None:
        again_at = self._clock() + AGAIN.compute_seconds(max(1, made))
        self._attempts[shortage.shape.name] = _Attempt(pod_uid, again_at, made)

    def _note_failure(self, name: str, error: RefusedError | NoAnswerError) -> None:
        self._results.labels("failed").inc()
        log.warning("placeholder not written name=%s error=%s", name, error)
        if not self._turn.note_failure(error):
            self._refused_until = self._clock() + REFUSED_SECONDS
