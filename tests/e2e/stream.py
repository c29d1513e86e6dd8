"""A stream of pods that come and go and always fit: any pod left unbound is an error.

No more than 100 of the 240 units are ever asked for at once, and no pod wants more than 6 units of each of two cards. For
one to fit nowhere, three cards of each of the four nodes would have to hold 10 units or more: 120.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card

NODES, CARDS = 4, 4
MOST_UNITS = 100
MOST_UNITS_OF_A_CARD = 6
I10_SECONDS = 60
"""After faults every pod that has a place is bound within so much."""


class PodStream:
    """Makes and deletes pods as `random` says."""

    def __init__(self, cluster: ControlPlane, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._numbers = itertools.count(1)
        self._units: dict[str, int] = {}
        """What each pod that is there asks, over all its cards."""
        for number in range(NODES):
            name = f"gpu-{number}"
            cluster.add_node(
                name, cards=cards_annotation(*(published_card(index, uuid=f"{name}-{index}") for index in range(CARDS)))
            )

    def create_more(self, count: int) -> None:
        """`count` new pods, after deleting as many old ones as it takes to make room."""
        for _ in range(count):
            self._one_more()

    def wait_bound(self) -> list[dict[str, Any]]:
        """All pods, once each of them is bound."""
        self._cluster.wait_until(lambda: not self._unbound(), I10_SECONDS, what=lambda: f"bound: {self._unbound()}")
        return self._pods()

    def _one_more(self) -> None:
        name, count = f"p{next(self._numbers)}", self._random.choice((1, 1, 1, 2))
        units = count * self._random.randint(1, MOST_UNITS_OF_A_CARD)
        while sum(self._units.values()) + units > MOST_UNITS:
            self._delete(self._random.choice(sorted(self._units)))
        labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
        self._cluster.request_ok("POST", PODS, pod_manifest(name, units, labels=labels))
        self._units[name] = units

    def _delete(self, name: str) -> None:
        """Bound, under way or waiting: any pod may go at any time."""
        self._cluster.request_ok("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        del self._units[name]

    def _pods(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self._cluster.request_ok("GET", PODS)["items"]
        return pods

    def _unbound(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._pods() if "nodeName" not in pod["spec"]]
