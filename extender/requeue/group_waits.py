"""Rejected pods that wait until enough pods of their group find cards. They may have free cards themselves, on any node.

So when their group fits, whatever made it fit, they are considered on all nodes, and not only on those that gained room.
"""

from __future__ import annotations

import asyncio

from extender.requeue.unschedulable_pods import Rejection, UnschedulablePods
from extender.state.group_fit import GroupFit
from extender.state.ledger import Ledger
from vrampack.cards.pod import Pod
from vrampack.cards.pod_group import GroupKey


class GroupWaits:
    """Over the rejections of one activator."""

    def __init__(self, ledger: Ledger, group_fit: GroupFit, pods: UnschedulablePods) -> None:
        self._ledger = ledger
        self._group_fit = group_fit
        self._pods = pods

    def reconsider_group(self, group: GroupKey) -> bool:
        """It has other pods or another minimum now. Whether any of its pods waits for that."""
        if not self._pods:
            return False
        rejections = [self._pods.get_rejection(pod.uid) for pod in self._ledger.list_group(group)]
        waiting = [each for each in rejections if each is not None and each.waits_for_group]
        for each in waiting:
            each.seen_generation = 0
        return bool(waiting)

    async def must_wait(self, pod: Pod, rejection: Rejection, capacity_generation: int) -> bool:
        """Whether too few pods of its group find cards, as of this generation."""
        if pod.group is None:
            return False
        is_short = self._group_fit.find_shortfall(pod) is not None
        if is_short:
            rejection.seen_generation = max(rejection.seen_generation, capacity_generation)
            rejection.placeable_since = None
        elif rejection.waits_for_group:
            rejection.seen_generation = 0
        rejection.waits_for_group = is_short
        await asyncio.sleep(0)  # a count takes some milliseconds
        return is_short
