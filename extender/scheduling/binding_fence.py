"""Settles unanswered Bindings: finds out that they landed, or makes sure that they no longer can.

A Binding carries the version of the pod that it is for, and the API server refuses it for any other version. So a pod that
is seen unbound at another version proves that the Binding has not landed and never will: its place is free. If the pod
still has that version, the fence gives it a new one. No place is released by a timeout: while the API server accepts no
write, the pod keeps its place and gets no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from extender.state.ledger import Ledger
from extender.state.places import Reservation
from extender.state.pod_client import PodClient
from vrampack.cards.pod import Pod
from vrampack.kube.errors import NoAnswerError, RefusedError
from vrampack.kube.retry_backoff import extend_pause

log = logging.getLogger(__name__)

CONFIRM_AFTER_SECONDS = 2.0
"""A reservation older than this is looked up: the watch shows a Binding within milliseconds."""
CONFIRM_MAX_BACKOFF_SECONDS = 15.0
CONFIRMS_AT_ONCE = 16
"""Pods looked up at a time: if the API server does not answer, each lookup must not wait for all others."""


class BindingFence:
    """Confirms or releases the reservations of one ledger."""

    def __init__(self, ledger: Ledger, pods: PodClient, *, call_seconds: float, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._pods = pods
        self._call_seconds = call_seconds
        self._clock = clock
        self._lookup_backoff: dict[tuple[str, str], tuple[float, float]] = {}
        """When to look up each reservation next, by uid and node, and how many seconds to wait after that."""

    async def fence_reservation(self, reservation: Reservation, deadline: float) -> Pod | None:
        """The pod once it is known that its Binding landed or never will; None when the pod is gone.

        Afterwards an unbound pod has no place here. Raises `NoAnswerError` or `RefusedError` when it is not known; the
        place stays. The Binding must not be under way: its answer would come after this.
        """
        seen = await self._pods.get_known_pod(reservation.pod, deadline)
        if seen is not None and not seen.node_name and reservation.may_land_on(seen):
            seen = await self._pods.request_retry(seen, deadline)
        if seen is None or seen.node_name:
            return seen
        # Still the same one, so it was read after the answer to its Binding. A written one can only be lost with a backup.
        if self._ledger.places.get_reservation(seen.uid) is reservation:
            self._ledger.release_place(seen.uid, reservation.node_name)
            log.info("binding fenced pod=%s node=%s", seen, reservation.node_name)
        return seen

    async def confirm_reservations(self, excluded: Collection[tuple[str, str]] = ()) -> None:
        """Look up the pods of old reservations: each ends bound, fenced or gone, or is looked up again later.

        `excluded` are the reservations whose Bindings are under way, by uid and node.
        """
        now = self._clock()
        waits, due_now = {}, []
        for each in self._ledger.places.list_reservations():
            key = (each.pod.uid, each.node_name)
            due, wait = self._lookup_backoff.get(key, (each.made_at + CONFIRM_AFTER_SECONDS, CONFIRM_AFTER_SECONDS))
            if now >= due and key not in excluded:
                due_now.append(each)
                due, wait = now + wait, min(wait * 2, CONFIRM_MAX_BACKOFF_SECONDS)
            waits[key] = (due, wait)
        self._lookup_backoff = waits
        slots = asyncio.Semaphore(CONFIRMS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for each in due_now:
                group.create_task(self._confirm_reservation(each, slots))

    async def _confirm_reservation(self, reservation: Reservation, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await self.fence_reservation(reservation, self._clock() + self._call_seconds)
            except (NoAnswerError, RefusedError) as error:
                log.warning(
                    "reservation not confirmed pod=%s node=%s error=%s", reservation.pod, reservation.node_name, error
                )
                self._put_off_lookup((reservation.pod.uid, reservation.node_name), error)

    def _put_off_lookup(self, key: tuple[str, str], error: NoAnswerError | RefusedError) -> None:
        """Look it up no sooner than the API server asked for."""
        due, wait = self._lookup_backoff[key]
        self._lookup_backoff[key] = max(due, self._clock() + extend_pause(0.0, error)), wait
