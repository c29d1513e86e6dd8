"""The pods that filter refused and that do not say so yet.

What a pod has been told stands on the pod, so nothing is remembered of the thousands that come back with every event: such a
call costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from vrampack.cards.reasons import UnfitReason

MAX_PODS = 8192
MAX_NAME_SETS = 16
"""Pods whose calls named the same nodes share the set of names. Each has thousands; few selectors are in use at a time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last call of filter that let no node pass for one pod."""

    names: frozenset[str]
    """The nodes that its scheduler asked about."""
    node_selector: str
    refused_since: float
    """When filter first refused the pod and has let no node pass since."""


class UntoldPods:
    """By uid. A pod that finds no room here is noted at its next refusal."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refusals: dict[str, Refusal] = {}
        self._name_sets: dict[frozenset[str], frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._refusals)

    def note_refusal(
        self, uid: str, told_reason: str, reason: UnfitReason, names: Collection[str], node_selector: str
    ) -> None:
        """Filter refused the pod, which says that it was refused for `told_reason`."""
        if told_reason == reason.condition_reason:
            if self._refusals:
                self._refusals.pop(uid, None)
            return
        known = self._refusals.get(uid)
        if known is not None and known.names is names:
            return  # the usual case: an answer of the rejection cache, again
        if known is None and len(self._refusals) >= MAX_PODS:
            return
        since = self._clock() if known is None else known.refused_since
        self._refusals[uid] = Refusal(self._share_names(names), node_selector, since)

    def forget_pod(self, uid: str) -> None:
        """It was told, or a node passed for it."""
        if self._refusals:
            self._refusals.pop(uid, None)

    def list_refusals(self) -> Mapping[str, Refusal]:
        return dict(self._refusals)

    def _share_names(self, names: Collection[str]) -> frozenset[str]:
        names = names if isinstance(names, frozenset) else frozenset(names)
        shared = self._name_sets.get(names)
        if shared is None:
            if len(self._name_sets) >= MAX_NAME_SETS:
                self._name_sets.clear()
                self._refusals.clear()
            shared = self._name_sets[names] = names
        return shared
