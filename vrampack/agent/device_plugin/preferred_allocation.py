"""Guesses which pod `GetPreferredAllocation` is for; only kubelet's own device allocations depend on it.

kubelet admits pods one after the other, mostly in the order in which they were bound; so the call is probably for the oldest
pod of that size that has no ids yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.kubelet.device_ids import WantedUnits
from vrampack.cards import well_known
from vrampack.cards.grants import read_grant
from vrampack.cards.records import RecordError


class PreferredAllocation:
    """Remembers the containers for which ids were already proposed."""

    def __init__(self, list_pods: Callable[[], Iterable[LocalPod]]) -> None:
        self._list_pods = list_pods
        self._proposed: set[tuple[str, str]] = set()

    def guess_wanted_units(self, size: int) -> WantedUnits | None:
        """What is wanted of each card by the container that `size` ids are probably for; None when no container matches."""
        waiting = [(pod, name) for pod in self._list_pods() for name in self._candidates(pod, size)]
        if not waiting:
            return None
        pod, name = min(waiting, key=lambda each: (_bound_at(each[0]), each[0].pod.uid))
        self._proposed.add((pod.pod.uid, name))
        is_whole = pod.pod.request is not None and pod.pod.request.card_request.whole
        return WantedUnits(read_grant(pod.annotations, name).units, is_whole)

    def forget_pod(self, uid: str) -> None:
        self._proposed = {each for each in self._proposed if each[0] != uid}

    def _candidates(self, pod: LocalPod, size: int) -> Iterable[str]:
        """Its containers of this size that have neither run nor had ids proposed."""
        for container in pod.pod.request.containers if pod.pod.request is not None else ():
            is_new = (
                container.name not in pod.started_containers and (pod.pod.uid, container.name) not in self._proposed
            )
            if is_new and container.units == size and _is_readable(pod, container.name):
                yield container.name


def _bound_at(pod: LocalPod) -> tuple[int, str]:
    """A sort key, oldest first. Nanoseconds as text sort like numbers if the shorter text comes first."""
    text = pod.annotations.get(well_known.GPUSHARE_ASSUME_TIME, "")
    return len(text), text


def _is_readable(pod: LocalPod, container: str) -> bool:
    try:
        read_grant(pod.annotations, container)
    except RecordError:
        return False
    return True
