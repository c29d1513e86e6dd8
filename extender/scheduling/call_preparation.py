"""Does the slow parts of a call ahead of it, in short steps between which other verbs may run.

A call is answered in one turn of the loop after its last byte. That is cheapest for nearly all calls; but a pod may have a
thousand containers, hundreds of nodes may have changed since the last call, and a new kind of request needs one computation
of what the rules leave of each node, or of the score of each node state.
"""

from __future__ import annotations

import asyncio

from extender.scheduling.engine_follower import EngineFollower
from extender.state.ledger import Ledger
from extender.state.nominator import Nominator
from extender.wire.args import ArgsReader, has_large_pod
from extender.wire.codec import MalformedCallError
from policies.engine.engine import Engine
from vrampack.cards.request import PodRequest


class CallPreparation:
    """For any verb. After it, the call finds its pod read and the nodes summarized."""

    def __init__(self, args: ArgsReader, follower: EngineFollower) -> None:
        self._args = args
        self._follower = follower

    def is_needed(self, body: bytes) -> bool:
        return self._follower.is_behind or has_large_pod(body)

    async def prepare_call(self, body: bytes) -> None:
        """Read the pod if it is large, and summarize changed nodes. Errors in the call are left to the call itself."""
        if has_large_pod(body):
            for _ in self._args.read_large_pod(body):
                await asyncio.sleep(0)
        if self._follower.is_behind:
            await self._follower.catch_up()


class RankingPreparation(CallPreparation):
    """For filter and prioritize: the call also finds the verdicts and scores of its request."""

    def __init__(
        self, args: ArgsReader, follower: EngineFollower, ledger: Ledger, nominator: Nominator, engine: Engine
    ) -> None:
        super().__init__(args, follower)
        self._ledger = ledger
        self._nominator = nominator
        self._engine = engine

    def is_needed(self, body: bytes) -> bool:
        if self._follower.is_behind or has_large_pod(body):
            return True
        return self._may_take_long and self._find_unprepared_request(body) is not None

    async def prepare_call(self, body: bytes) -> None:
        await super().prepare_call(body)
        found = self._find_unprepared_request(body) if self._may_take_long else None
        if found is not None:
            for _ in self._engine.prepare_request(*found):
                await asyncio.sleep(0)

    @property
    def _may_take_long(self) -> bool:
        """Whether some request may take long to answer: under rules, or when nodes vary."""
        return self._ledger.in_force.has_rules or self._engine.ranks_many_states

    def _find_unprepared_request(self, body: bytes) -> tuple[PodRequest, str] | None:
        """The pod's request under the rules and profiles in force, and its uid; None if its verdicts exist already."""
        in_force = self._ledger.in_force
        try:
            pod = self._args.peek_args(body).pod
        except MalformedCallError:
            return None
        if pod.request is None:
            return None
        self._nominator.note_caller(pod)
        pod_request = in_force.resolve_request(pod, pod.request)
        return None if self._engine.is_prepared(pod_request, pod.uid) else (pod_request, pod.uid)
