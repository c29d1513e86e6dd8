"""Which generation of the configuration ranks nodes for a pod: that of its last filter, until it is bound.

Otherwise a file that changes between filter, prioritize and bind would let two policies decide about one pod. Whether a
pod fits, rules included, is always decided by the configuration in force.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cachetools import LRUCache

from policies.engine.engine import Engine
from vrampack.cards.request import PodRequest, ProfileChoice
from vrampack.cards.tuned_policy import TunedPolicy

MAX_PINNED_PODS = 10_000
"""More than a scheduler has between filter and bind; each takes 0.2 KB."""


class PinnedGeneration(NamedTuple):
    """The generation that ranks for a pod."""

    generation: int
    policy: TunedPolicy


class PodGenerations:
    """The pins of the pods that are being placed. `current` is the configuration's generation."""

    def __init__(self, engine: Engine) -> None:
        self.current = 1
        self._engine = engine
        self._pins: LRUCache[str, PinnedGeneration] = LRUCache(MAX_PINNED_PODS)

    def begin_generation(self) -> int:
        """Another configuration is in force. Returns its generation."""
        self.current += 1
        return self.current

    def pin_pod(self, uid: str, pod_request: PodRequest) -> int:
        """The pod passed filter: the configuration in force ranks for it. Returns its generation."""
        self._pins[uid] = PinnedGeneration(self.current, self._engine.choose_policy(pod_request))
        return self.current

    def get_generation(self, uid: str) -> int:
        """The generation that ranks for the pod."""
        pin = self._pins.get(uid)
        return self.current if pin is None else pin.generation

    def apply_pin(self, uid: str, pod_request: PodRequest) -> PodRequest:
        """The request as its generation ranks it."""
        pin = self._pins.get(uid)
        if pin is None or pin.generation == self.current:
            return pod_request
        return replace(pod_request, policy=None, profile=ProfileChoice("", pin.policy))

    def forget_pod(self, uid: str) -> None:
        """The pod was bound, or is filtered again."""
        self._pins.pop(uid, None)
