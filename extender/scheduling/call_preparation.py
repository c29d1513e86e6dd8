"""What of a call would hold the loop for long, done ahead of it in short steps: other verbs have their turn in between.

A call is answered in one turn of the loop, from its last byte on. That is cheapest for nearly all of them; but a pod may have a
thousand containers, and hundreds of nodes may have changed since the last call.
"""

from __future__ import annotations

import asyncio

from extender.scheduling.engine_follower import EngineFollower
from extender.wire.args import ArgsReader, has_large_pod


class CallPreparation:
    """For filter and prioritize. The call that follows finds its pod read and the nodes summarized."""

    def __init__(self, args: ArgsReader, follower: EngineFollower) -> None:
        self._args = args
        self._follower = follower

    def is_needed(self, body: bytes) -> bool:
        return self._follower.is_behind or has_large_pod(body)

    async def prepare_call(self, body: bytes) -> None:
        """Read the pod if it is large, and take up what changed. What is wrong with the call is left to the call."""
        if has_large_pod(body):
            for _ in self._args.read_large_pod(body):
                await asyncio.sleep(0)
        if self._follower.is_behind:
            await self._follower.catch_up()
