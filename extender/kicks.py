"""Wakes the pods that were refused and would fit now, where the scheduler has no reason to try them again.

    filter refuses --> waits --room it has not seen, and fits with the others--> kicked --filter passes--> bound
                         ^                                                          |
                         '---- filter refuses again, or not bound within 5 s -------'
                               (the place goes to the next, the pod backs off)

The event that frees room may reach the scheduler before us: it asks, we refuse, and nothing wakes the pod until the
scheduler's flush after five minutes. So does room that no event tells of: a reservation that a failed bind gave
back, a card that healed. A kick is one annotation through the pod's status: the scheduler tries this one pod again.
Whoever passed filter or has not been refused is the scheduler's business.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from extender.ledger import Ledger
from extender.metrics import Metrics
from extender.nominations import Nominations
from extender.plan import Plan
from extender.waiting import Refusal, Waiting, is_waiting
from policies.engine import Engine
from policies.layout import Laid
from vrampack.cards import keys
from vrampack.cards.pod import Pod
from vrampack.cards.request import Request
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.03
"""Several changes are one round; and where the scheduler heard of the room too, it asks within that time by itself."""
REST = 4
"""A round rests so many times as long as it took: with thousands waiting it costs a fifth of a core, not all."""
ATTEMPT_SECONDS = 5.0
CALLED_SECONDS = 300.0
"""An extender that no scheduler called for so long is a standby: its kicks would be another one's business."""
ADOPT_SECONDS = 5.0
"""How long a new process waits for the scheduler to ask about the pods that are there, after the last one it could help."""
ADOPT_LATEST_SECONDS = 60.0
"""The same after the first call, however long the scheduler's queue is."""
PATCH_SECONDS = 1.0
UNREADY_SECONDS = 1.0
EXPECTS_SECONDS = 0.5
"""How often to look whether evictions that preempt named are settled: nobody tells."""
MOST_KICKED = 100
"""Kicks whose pods the scheduler has not asked about yet: it tries one pod at a time anyway."""
LOOKED_AT_ONCE = 500
"""Pods, before others get their turn: about 3 ms."""
GONE = frozenset({404, 409, 422})
"""No such pod, or another uid under its name."""

Candidate = tuple[tuple[bool, int, bool, str, str], Pod, Refusal]
"""How urgent, most urgent first (no two are equally so: the last is the uid); who; and what is known of it."""


@dataclass(slots=True)
class Attempt:
    """A pod that was kicked, and the place that is kept for it meanwhile."""

    pod: Pod
    request: Request
    laid: Laid
    until: float
    has_passed: bool = False


class Kicker:
    """Hears of refusals and of room, and kicks. A `ledger.Listener`."""

    def __init__(  # noqa: PLR0913 - what a kick touches
        self,
        *,
        ledger: Ledger,
        engine: Engine,
        nominations: Nominations,
        api: Api,
        metrics: Metrics,
        problem: Callable[[], str],
        clock: Callable[[], float],
        started_ns: int,
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._nominations = nominations
        self._api = api
        self._metrics = metrics
        self._problem = problem
        self._clock = clock
        self._started_ns = started_ns
        self._waiting = Waiting()
        self._attempts: dict[str, Attempt] = {}
        self._woken = asyncio.Event()
        self._rounds = 0
        self._called_at: float | None = None
        self._adopt_at: float | None = None
        self._adopt_latest = 0.0
        self._is_adopted = False
        self._expects = False
        self.next_at: float | None = None
        """When there is reason for a round if nothing changes."""

    def room_grew(self) -> None:
        self._woken.set()

    def pod_appeared(self, uid: str) -> None:
        if uid in self._waiting:
            self._woken.set()

    def evictions_expected(self) -> None:
        """Preempt answered: whoever is refused for it meanwhile must be woken when it ends."""
        self._woken.set()

    def called(self) -> None:
        """A scheduler called filter."""
        now = self._clock()
        if not self._is_called(now):
            self._woken.set()
        if self._adopt_at is None:
            self._adopt_at = now + ADOPT_SECONDS
            self._adopt_latest = now + ADOPT_LATEST_SECONDS
        self._called_at = now

    def filtered(self, uid: str, names: Collection[str], *, fits: bool) -> None:
        """Filter answered for this pod: whether any of these nodes can take it."""
        now = self._clock()
        attempt = self._attempts.get(uid)
        if fits:
            if self._adopt_at is not None and not self._is_adopted:
                self._adopt_at = min(now + ADOPT_SECONDS, self._adopt_latest)
            if self._waiting.admit(uid, now):
                self._metrics.bound_after_flush.inc()
            if attempt is not None:
                attempt.has_passed = True
                self._woken.set()
            return
        self._waiting.refuse(uid, self._ledger.room_generation, now)
        if attempt is not None:
            # A node that the scheduler did not even ask about is closed to the pod for other reasons than ours.
            self._end(uid, "refused", is_vain=attempt.laid.node_name not in names)
            self._woken.set()

    async def run(self) -> None:
        """Kick whenever there is reason to, until cancelled."""
        while True:
            await self._wait()
            await asyncio.sleep(COALESCE_SECONDS)
            self._woken.clear()
            started = self._clock()
            chosen = await self.plan()
            took = self._clock() - started
            await self.kick(chosen)
            await asyncio.sleep(min(took * REST, UNREADY_SECONDS))

    async def plan(self) -> list[Attempt]:
        """One round: who is to be woken now. They count as under way from here on."""
        now = self._clock()
        self.next_at = None
        if self._problem():
            self.next_at = now + UNREADY_SECONDS if self._waiting or not self._is_adopted else None
            return []
        self._settle(now)
        self._expects = self._nominations.settle()
        await self._adopt(now)
        chosen = await self._choose(await self._candidates(now), now)
        # Others had their turns meanwhile: whoever passed filter in them needs no kick.
        chosen = [attempt for attempt in chosen if attempt.pod.uid in self._waiting]
        for attempt in chosen:
            self._attempts[attempt.pod.uid] = attempt
        await asyncio.sleep(0)
        self._note_next(now)
        return chosen

    async def kick(self, chosen: Collection[Attempt]) -> None:
        """Write one annotation each."""
        if chosen:
            self._rounds += 1
            async with asyncio.TaskGroup() as group:
                for attempt in chosen:
                    group.create_task(self._write(attempt, f"{self._started_ns}-{self._rounds}"))

    async def _wait(self) -> None:
        seconds = None if self.next_at is None else max(0.0, self.next_at - self._clock())
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            log.debug("kick round due waiting=%d", len(self._waiting))

    def _is_called(self, now: float) -> bool:
        return self._called_at is not None and now - self._called_at <= CALLED_SECONDS

    def _settle(self, now: float) -> None:
        """Ends the attempts that came to something, or to nothing in time."""
        for uid, attempt in list(self._attempts.items()):
            pod = self._ledger.pod(uid)
            if pod is None or not is_waiting(pod):
                self._end(uid, "bound" if pod is not None and pod.node_name else "gone")
            elif now >= attempt.until:
                self._end(uid, "expired", is_vain=True)

    async def _adopt(self, now: float) -> None:
        """Takes what an earlier process may have refused for refused: it has seen no room of this one."""
        if self._is_adopted or self._adopt_at is None or now < self._adopt_at:
            return
        self._is_adopted = True
        for at, pod in enumerate(list(self._ledger.pods()), start=1):
            if is_waiting(pod) and pod.uid not in self._waiting and pod.uid not in self._attempts:
                self._waiting.refuse(pod.uid, 0, now)
            if at % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _candidates(self, now: float) -> list[list[Candidate]]:
        """Those that have not seen all room yet, most urgent first: sorted lists, to be merged."""
        held = {each.pod.uid for each in self._ledger.reservations()} | self._attempts.keys()
        newest = self._ledger.room_generation
        chunks: list[list[Candidate]] = [[]]
        for pod, refusal in self._waiting.live(self._ledger.pod, now):
            if refusal.since >= newest or pod.uid in held:
                continue
            urgency = (
                now < refusal.until,
                -pod.priority,
                not self._nominations.is_nominee(pod),
                pod.created_at,
                pod.uid,
            )
            chunks[-1].append((urgency, pod, refusal))
            if len(chunks[-1]) == LOOKED_AT_ONCE:
                chunks[-1].sort()
                chunks.append([])
                await asyncio.sleep(0)
        chunks[-1].sort()
        return chunks

    async def _choose(self, chunks: list[list[Candidate]], now: float) -> list[Attempt]:
        generation = self._ledger.room_generation
        oldest = min((refusal.since for chunk in chunks for _, _, refusal in chunk), default=generation)
        plan = Plan(self._ledger.roomier_since(oldest), self._held())
        await asyncio.sleep(0)
        room = MOST_KICKED - sum(not each.has_passed for each in self._attempts.values())
        may_kick = self._is_called(now)
        chosen: list[Attempt] = []
        for at, each in enumerate(heapq.merge(*chunks), start=1):
            if len(chosen) >= room:
                break
            if plan.is_spent:
                self._woken.set()
                break
            attempt = await self._lay(plan, each, generation, now)
            if attempt is not None and may_kick:
                chosen.append(attempt)
            if at % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        log.debug("kick round waiting=%d chosen=%d generation=%d", len(self._waiting), len(chosen), generation)
        return chosen

    async def _lay(self, plan: Plan, candidate: Candidate, generation: int, now: float) -> Attempt | None:
        _, pod, refusal = candidate
        if pod.ask is None:
            return None
        request, policy = pod.ask.request, self._engine.policy_for(pod.ask)
        vain = refusal.vain if now < refusal.until else ()
        laid = await plan.lay(request, policy, since=refusal.since, without=vain)
        if laid is not None:
            refusal.room_at = now if refusal.room_at is None else refusal.room_at
            return Attempt(pod, request, laid, now + ATTEMPT_SECONDS)
        if await plan.is_hopeless(request, policy, since=refusal.since):
            refusal.since = max(refusal.since, generation)
            refusal.room_at = None
        return None

    def _held(self) -> list[tuple[Laid, Request]]:
        """Places that the ledger does not count: of those that were kicked, and of nominated pods that do not wait here."""
        reserved = {each.pod.uid for each in self._ledger.reservations()}
        kicked = [(each.laid, each.request) for uid, each in self._attempts.items() if uid not in reserved]
        kept = [
            (each.laid, each.request)
            for each in self._nominations.all_kept()
            if each.pod.uid not in self._waiting and each.pod.uid not in self._attempts
        ]
        return kicked + kept

    async def _write(self, attempt: Attempt, value: str) -> None:
        pod, node_name = attempt.pod, attempt.laid.node_name
        refusal = self._waiting.get(pod.uid)
        try:
            await self._api.patch_pod_status(
                pod.namespace, pod.name, pod.uid, {keys.RETRY: value}, timeout_seconds=PATCH_SECONDS
            )
        except (RefusedError, NoAnswerError) as error:
            is_gone = isinstance(error, RefusedError) and error.status in GONE
            log.log(logging.DEBUG if is_gone else logging.WARNING, "kick failed pod=%s error=%s", pod, error)
            self._end(pod.uid, "gone" if is_gone else "failed", is_vain=True)
            self._woken.set()
            return
        log.info("kicked pod=%s node=%s retry=%s", pod, node_name, value)
        if refusal is not None:
            refusal.is_kicked = True

    def _end(self, uid: str, result: str, *, is_vain: bool = False) -> None:
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return
        self._metrics.kicks.labels(result).inc()
        refusal = self._waiting.get(uid)
        if is_vain and refusal is not None:
            refusal.back_off(attempt.laid.node_name, self._clock())

    def _note_next(self, now: float) -> None:
        """When there is reason for a round if nothing changes: an attempt ends, a back-off ends, pods are adopted."""
        newest = self._ledger.room_generation
        times = [attempt.until for attempt in self._attempts.values()]
        times += [each.until for each in self._waiting.refusals() if each.until > now and each.since < newest]
        if not self._is_adopted and self._adopt_at is not None:
            times.append(self._adopt_at)
        if self._expects:
            times.append(now + EXPECTS_SECONDS)
        self.next_at = min(times, default=None)
