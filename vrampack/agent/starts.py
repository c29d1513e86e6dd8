"""A container is about to start: who it is, whether it may, and its limit put in place first.

kubelet names device ids only. Its own books (pod-resources) say by then whose they are, and the API server says what
that pod was given. A container that passed before needs no call to the API server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from vrampack.agent.errors import KubeletError, RefusedStartError
from vrampack.agent.fence import Fence, Passed, Start
from vrampack.agent.localpod import LocalPod
from vrampack.agent.metrics import Metrics
from vrampack.agent.podresources import Held, Noted
from vrampack.agent.refusals import Refusals
from vrampack.agent.settling import Settled
from vrampack.cards.node import CardFacts
from vrampack.cards.pod import Pod
from vrampack.kube.errors import NoAnswerError, RefusedError

log = logging.getLogger(__name__)


class Books(Protocol):
    """kubelet's, see `podresources.py`."""

    async def held(self) -> tuple[Held, ...]: ...
    async def noted(self) -> tuple[Noted, ...]: ...


class Asking(Protocol):
    """The API server's pods, see `pods.py`."""

    def of(self, uid: str) -> LocalPod | None: ...
    async def correct(self, pod: Pod, record: Mapping[str, str]) -> None: ...
    async def ask(self, namespace: str, name: str) -> LocalPod | None: ...


class Limiting(Protocol):
    """Puts the limit of a container that may start in place. Raises `RefusedStartError` when it cannot."""

    async def apply(self, held: Held, passed: Passed, pod: LocalPod | None) -> None: ...


class Starts:
    """What `PreStartContainer` does."""

    def __init__(  # noqa: PLR0913 - what it needs, each named
        self,
        fence: Fence,
        books: Books,
        pods: Asking,
        limits: Limiting,
        refusals: Refusals,
        metrics: Metrics,
        *,
        cards: Callable[[], Iterable[CardFacts]],
        settling: Callable[[Start], Settled] | None = None,
    ) -> None:
        """`settling`: how pods are settled from their ids; None where admission tells every container its card."""
        self._settling = settling
        self._fence = fence
        self._books = books
        self._pods = pods
        self._limits = limits
        self._refusals = refusals
        self._metrics = metrics
        self._cards = cards

    def allocated(self, ids: Iterable[str]) -> None:
        """Kubelet hands these ids to a container that is not started yet."""
        self._fence.allocated(ids)

    async def start(self, ids: frozenset[str]) -> Passed:
        """Leave for the container that has exactly these ids. Raises `RefusedStartError`."""
        held = await self._whose(ids)
        passed = self._fence.known(held)
        if passed is None:
            start = _named(Start(held, await self._pod(held)))
            passed = await self._first_start(start)
        else:
            await self._limits.apply(held, passed, None)
        self._metrics.starts.labels("older" if passed.is_older else "ok").inc()
        return passed

    async def _first_start(self, start: Start) -> Passed:
        try:
            settled = self._settle(start)
            start = settled.start
            passed = self._fence.judge(start, self._cards(), needs_references=self._settling is None)
            self._fence.enter(start, passed, self._cards())  # in one turn of the loop with the judgement
        except RefusedStartError as error:
            if error.reason != "other_node":  # that is a namesake, which runs elsewhere and must not be evicted
                self._refusals.refused(start, error)
            raise
        try:
            await self._correct(settled)
            await self._limits.apply(start.held, passed, start.pod)
        except RefusedStartError as error:
            self._fence.withdraw(start, passed)
            self._refusals.refused(start, error)
            raise
        if passed.ids_differ:
            self._metrics.id_card_mismatch.inc()
        self._refusals.ended(passed.uid)
        log.info(
            "started pod=%s container=%s uid=%s cards=%s",
            start.pod.pod,
            start.held.container,
            passed.uid,
            ",".join(passed.grant.units) if passed.grant else "older",
        )
        return passed

    def _settle(self, start: Start) -> Settled:
        """In `ids` mode, with the record that its ids call for; a pod that admission wired up is left as it is."""
        ask = start.pod.pod.request
        if self._settling is None or ask is None or ask.has_references:
            return Settled(start, {})
        settled = self._settling(start)
        if settled.correction and self._fence.holds(start.pod.pod.uid):
            text = "kubelet took devices of another card for this container than for the pod's first; recreate the pod"
            raise RefusedStartError("ids", text)
        return settled

    async def _correct(self, settled: Settled) -> None:
        if not settled.correction:
            return
        pod = settled.start.pod.pod
        try:
            await self._pods.correct(pod, settled.correction)
        except (NoAnswerError, RefusedError) as error:
            raise RefusedStartError("api", f"its record could not be made to say its card: {error}") from error
        self._metrics.corrections.inc()
        log.info("record corrected pod=%s uid=%s", pod, pod.uid)

    async def _whose(self, ids: frozenset[str]) -> Held:
        """Whose ids these are. A plain init container is in no public book, but it shares its ids with the pod's others.

        One that shares them with nobody stands in kubelet's checkpoint only.
        """
        try:
            held = await self._books.held()
            found = next((each for each in held if each.ids == ids), None) or _sharing(ids, held)
            found = found or await self._noted(ids)
        except KubeletError as error:
            raise RefusedStartError("unknown_ids", f"kubelet does not say whose devices these are: {error}") from error
        if found is None:
            text = f"kubelet's own books have no container with these {len(ids)} devices"
            raise RefusedStartError("unknown_ids", text)
        return found

    async def _noted(self, ids: frozenset[str]) -> Held | None:
        """The newest entry of these very ids whose pod is on this node."""
        for entry in reversed([each for each in await self._books.noted() if each.ids == ids]):
            pod = self._pods.of(entry.pod_uid)
            if pod is not None:
                return Held(pod.pod.namespace, pod.pod.name, entry.container, ids)
        return None

    async def _pod(self, held: Held) -> LocalPod:
        try:
            pod = await self._pods.ask(held.namespace, held.pod)
        except (NoAnswerError, RefusedError) as error:
            text = f"the API server does not say what pod {held.namespace}/{held.pod} was given: {error}"
            raise RefusedStartError("api", text) from error
        if pod is None:
            raise RefusedStartError("unknown_pod", f"the API server has no pod {held.namespace}/{held.pod}")
        return pod


def _sharing(ids: frozenset[str], held: Iterable[Held]) -> Held | None:
    """The one pod that has some of these ids; its container is none of those that are listed."""
    pods = {(each.namespace, each.pod) for each in held if not each.ids.isdisjoint(ids)}
    if len(pods) != 1:
        return None
    namespace, pod = pods.pop()
    return Held(namespace, pod, "", ids)


def _named(start: Start) -> Start:
    """With the name of the init container, where only its pod was known: one that asks for so many units."""
    held, ask = start.held, start.pod.pod.request
    if held.container or ask is None:
        return start
    size = len(held.ids)
    name = next((each.name for each in ask.containers if each.kind == "init" and each.units == size), "")
    if not name:
        text = f"no init container of pod {start.pod.pod} asks for the {size} devices that it is started with"
        raise RefusedStartError("unknown_ids", text)
    return replace(start, held=replace(held, container=name))
