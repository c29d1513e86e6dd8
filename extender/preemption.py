"""Preempt: the scheduler proposes victims by node totals, the answer has victims that free one card set.

What is proposed for a node is kept, whatever it holds of ours: only the scheduler knows which of it its own totals need.
Further pods are added only where that frees no card set, and where no such pods exist the node is dropped. Nothing is
evicted here: the scheduler deletes the victims of the one node it chooses. From the answer on their cards are kept for the
pod, and what is kept for another one is no room. docs/decisions has the reasons.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from extender.ledger import Ledger
from extender.metrics import Metrics
from extender.nominations import Nominations
from extender.verbs import Answer
from extender.victims import added_victims
from extender.wire import WireError, encode
from extender.wire_preempt import MetaPod, MetaVictims, PreemptionResult, Proposal, read_preemption
from vrampack.cards.holding import Hold
from vrampack.cards.pod import Pod
from vrampack.cards.request import Request

log = logging.getLogger(__name__)


class EvictionListener(Protocol):
    """Who wants to know that pods may be evicted soon."""

    def evictions_expected(self) -> None:
        """There is an answer whose end must be noticed."""


class Preemption:
    """The verb preempt over one ledger. Changes nothing but what is kept for the pod."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        nominations: Nominations,
        listener: EvictionListener,
        metrics: Metrics,
        problem: Callable[[], str],
        resource: str,
    ) -> None:
        self._ledger = ledger
        self._nominations = nominations
        self._listener = listener
        self._answers = metrics.preemptions
        self._problem = problem
        self._resource = resource

    async def preempt(self, body: bytes) -> Answer:
        """Victims for those of the proposed nodes where they would make room.

        There is no place for an error: 400 malformed, 503 not ready. The scheduler then evicts nobody.
        """
        problem = self._problem()
        if problem:
            return self._error("unready", 503, f"not ready: {problem}")
        try:
            proposal = read_preemption(body, self._resource)
        except WireError as error:
            return self._error("malformed", 400, str(error))
        victims = await self._victims(proposal)
        added = sum(len(each.pods) - len(proposal.victims[name].pods) for name, each in victims.items())
        result = ("added" if added else "ok") if victims else "no"
        self._answers.labels(result).inc()
        log.info(
            "preempting pod=%s proposed_nodes=%d nodes=%d added_victims=%d",
            proposal.pod,
            len(proposal.victims),
            len(victims),
            added,
        )
        return Answer(encode(PreemptionResult(victims)), "ok" if victims else "no")

    async def _victims(self, proposal: Proposal) -> dict[str, MetaVictims]:
        pod = self._ledger.pod(proposal.pod.uid) or proposal.pod
        answered: dict[str, MetaVictims] = {}
        for name, proposed in proposal.victims.items():
            victims = self._on_node(name, proposed, pod) if proposal.may_preempt else None
            # One node without a victim is an error of the whole attempt: leave it out.
            if victims is not None and victims.pods:
                answered[name] = victims
            await asyncio.sleep(0)
        if answered and pod.ask is not None:
            self._nominations.expect(
                proposal.pod, {name: [each.uid for each in at.pods] for name, at in answered.items()}
            )
            self._listener.evictions_expected()
        return answered

    def _on_node(self, name: str, proposed: MetaVictims, pod: Pod) -> MetaVictims | None:
        """The proposal with what it lacks, or None where the pod cannot be helped."""
        if pod.ask is None or pod.node_name:
            return proposed
        uids = [each.uid for each in proposed.pods]
        known = [victim for uid in uids if (victim := self._ledger.pod(uid)) is not None]
        if any(victim.priority >= pod.priority for victim in known):
            return None
        added = self._added(name, pod, pod.ask.request, uids)
        if added is None:
            return None
        merged = _merged(uids, known, [hold.pod for hold in added])
        return MetaVictims([MetaPod(uid) for uid in merged], proposed.violations)

    def _added(self, name: str, pod: Pod, request: Request, going: Sequence[str]) -> list[Hold] | None:
        node = self._ledger.node(name)
        if node is None:
            return None
        holds = [hold for hold in self._ledger.holds(name) if hold.pod.uid != pod.uid]
        holds += self._nominations.holds_kept_from(name, pod)
        return added_victims(node, holds, request=request, priority=pod.priority, going=frozenset(going))

    def _error(self, result: str, status: int, text: str) -> Answer:
        self._answers.labels(result).inc()
        return Answer(encode({"error": text}), "error", status)


def _merged(uids: Iterable[str], known: Iterable[Pod], added: Iterable[Pod]) -> list[str]:
    """The added pods among the proposed ones, most important first, as far as we know those.

    The scheduler takes the first victim of a node for the most important one when it compares nodes.
    """
    merged = list(uids)
    priorities = {pod.uid: pod.priority for pod in known}
    for pod in added:
        lesser = (at for at, uid in enumerate(merged) if priorities.get(uid, pod.priority) < pod.priority)
        merged.insert(next(lesser, len(merged)), pod.uid)
        priorities[pod.uid] = pod.priority
    return merged
