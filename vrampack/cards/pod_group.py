"""Groups of pods that a scheduler starts together, by name."""

from __future__ import annotations

from typing import Literal, NamedTuple

GroupKind = Literal["podgroups.scheduling.k8s.io", "podgroups.scheduling.x-k8s.io"]
"""Kubernetes' own, and those of the plugin Coscheduling."""


class GroupKey(NamedTuple):
    """The group that a pod names. Its object may not exist."""

    kind: GroupKind
    namespace: str
    name: str
