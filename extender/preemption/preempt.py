"""Preempt: the scheduler proposes victims by node totals; the answer names victims that free one card set.

All proposed victims of a node are kept: only the scheduler knows which of them its own totals need. Further pods are added
only where the proposed ones free no card set, and a node without such pods is dropped. Nothing is evicted here: the
scheduler deletes the victims of the one node it chooses. After the answer their cards are kept for the pod; cards that are
kept for another pod do not count as free. docs/decisions has the reasons.

A call names hundreds of nodes, so other verbs may run between two of them. The answer is still consistent: nodes that
changed meanwhile are evaluated again, and calls are answered one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from extender.metrics import ExtenderMetrics
from extender.preemption.node_victims import NodeVictims
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.state.sync import ReadinessCheck
from extender.wire.codec import MalformedCallError, VerbResponse, encode_json
from extender.wire.preemption import MetaPod, MetaVictims, PreemptionProposal, PreemptionResult, read_preemption_args
from vrampack.cards.pod import Pod

log = logging.getLogger(__name__)


class EvictionListener(Protocol):
    """Is told when pods may be evicted soon."""

    def on_evictions_expected(self) -> None:
        """A preemption is pending. No event will announce its end."""


class CardPreemptions(Protocol):
    """Evicts pods by itself where the scheduler proposes none."""

    def is_served(self, uid: str) -> bool: ...
    def note_proposal(self, scheduler_name: str, *, has_empty: bool) -> None: ...


class ConfigurationGeneration(Protocol):
    """Which configuration is in force."""

    @property
    def current(self) -> int: ...


class Preemption:
    """The verb preempt over one ledger. It only changes which cards are kept for the pod."""

    def __init__(  # noqa: PLR0913 - what an answer is made of
        self,
        *,
        ledger: Ledger,
        nominator: Nominator,
        listener: EvictionListener,
        metrics: ExtenderMetrics,
        readiness: ReadinessCheck,
        resource: str,
        generations: ConfigurationGeneration,
        by_card: CardPreemptions,
        group_fit: GroupFit,
    ) -> None:
        self._ledger = ledger
        self._nominator = nominator
        self._victims = NodeVictims(ledger, nominator)
        self._listener = listener
        self._results = metrics.preemptions
        self._readiness = readiness
        self._resource = resource
        self._generations = generations
        self._by_card = by_card
        self._group_fit = group_fit
        self._one_call = asyncio.Lock()

    async def preempt(self, body: bytes) -> VerbResponse:
        """Victims for each proposed node where evictions make room for the pod.

        The answer has no field for an error: HTTP 400 when malformed, 503 when not ready. The scheduler then evicts no pod.
        """
        problem = self._readiness.find_unready_reason()
        if problem:
            return self._build_error("unready", 503, f"not ready: {problem}")
        try:
            proposal = read_preemption_args(body, self._resource, self._ledger.label_keys)
        except MalformedCallError as error:
            return self._build_error("malformed", 400, str(error))
        problem = self._ledger.in_force.find_unready_reason(proposal.pod.namespace)
        if problem and proposal.pod.request is not None:
            return self._build_error("unready", 503, f"not ready: {problem}")
        async with self._one_call:
            await self._nominator.catch_up()
            victims = await self._find_victims(proposal)
            generation = self._generations.current
        added = sum(len(each.pods) - len(proposal.victims[name].pods) for name, each in victims.items())
        result = ("added" if added else "ok") if victims else "no"
        self._results.labels(result).inc()
        log.info(
            "preempting pod=%s proposed_nodes=%d nodes=%d added_victims=%d",
            proposal.pod,
            len(proposal.victims),
            len(victims),
            added,
        )
        body = encode_json(PreemptionResult(victims))
        return VerbResponse(body, "ok" if victims else "no", generation=generation)

    async def _find_victims(self, proposal: PreemptionProposal) -> dict[str, MetaVictims]:
        proposed_pod = self._ledger.in_force.resolve_pod(proposal.pod)
        pod = self._ledger.get_pod(proposal.pod.uid) or proposed_pod
        found: dict[str, MetaVictims | None] = dict.fromkeys(proposal.victims)
        is_going: dict[str, bool] = {}
        has_empty = any(not victims.pods for victims in proposal.victims.values())
        self._by_card.note_proposal(proposed_pod.scheduler_name, has_empty=has_empty)
        names: Collection[str] = found if proposal.may_preempt and self._may_gain(pod) else ()
        while names:
            # Each pass is shorter than the one before: it evaluates only the nodes that changed meanwhile.
            generation = self._ledger.generation
            for name in names:
                found[name] = victims = self._find_node_victims(name, proposal.victims[name], pod)
                is_going[name] = victims is not None and self._nominator.is_any_terminating(
                    each.uid for each in victims.pods
                )
                await asyncio.sleep(0)
            names = self._list_changed_nodes(generation, found)
        # The scheduler rejects the whole answer if a node has no victim: leave such nodes out.
        victims_by_node = {name: victims for name, victims in found.items() if victims is not None and victims.pods}
        if victims_by_node and pod.request is not None:
            self._nominator.add_preemption(
                proposed_pod,
                {name: [each.uid for each in victims.pods] for name, victims in victims_by_node.items()},
                [name for name in victims_by_node if is_going[name]],
            )
            self._listener.on_evictions_expected()
        return victims_by_node

    def _may_gain(self, pod: Pod) -> bool:
        """Not while others are evicted for it, and not if its group stays too small after all evictions."""
        return not self._by_card.is_served(pod.uid) and self._group_fit.find_shortfall(pod) is None

    def _list_changed_nodes(self, generation: int, names: Collection[str]) -> Collection[str]:
        """The named nodes that changed after this generation of the ledger."""
        changed = self._ledger.list_nodes_changed_since(generation)
        return names if changed is None else [name for name in changed if name in names]

    def _find_node_victims(self, name: str, proposed: MetaVictims, pod: Pod) -> MetaVictims | None:
        """The proposed victims and those that must be added; None when no victims make room for the pod."""
        if pod.request is None or pod.node_name:
            return proposed
        uids = [each.uid for each in proposed.pods]
        known = [victim for uid in uids if (victim := self._ledger.get_pod(uid)) is not None]
        if any(victim.priority >= pod.priority for victim in known):
            return None
        added = self._victims.find_victims(name, pod, pod.request.card_request, leaving_uids=frozenset(uids))
        if added is None:
            return None
        merged = _merge_victims(uids, known, [hold.pod for hold in added])
        return MetaVictims(tuple(MetaPod(uid) for uid in merged), proposed.violations)

    def _build_error(self, result: str, status: int, text: str) -> VerbResponse:
        self._results.labels(result).inc()
        return VerbResponse(encode_json({"error": text}), "error", status)


def _merge_victims(uids: Iterable[str], known: Iterable[Pod], added: Iterable[Pod]) -> list[str]:
    """The added pods among the proposed ones, most important first as far as their priorities are known.

    The scheduler takes the first victim of a node for the most important one when it compares nodes.
    """
    merged = list(uids)
    priorities = {pod.uid: pod.priority for pod in known}
    for pod in added:
        lesser = (position for position, uid in enumerate(merged) if priorities.get(uid, pod.priority) < pod.priority)
        merged.insert(next(lesser, len(merged)), pod.uid)
        priorities[pod.uid] = pod.priority
    return merged
