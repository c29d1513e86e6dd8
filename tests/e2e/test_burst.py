"""Hundreds of pods at once: all of them are bound, on no more cards than they fill, and the time is printed.

`VRAMPACK_BURST_PODS` (200) says how many.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card, read_allocation_record

PODS_AT_ONCE = int(os.environ.get("VRAMPACK_BURST_PODS", "200"))
NODES, CARDS, UNITS_OF_A_CARD, UNITS = PODS_AT_ONCE // 5, 8, 16, 4
FULL_CARDS = PODS_AT_ONCE * UNITS // UNITS_OF_A_CARD
BOUND_SECONDS = 90
"""For a thousand, on two busy cores; a quiet machine needs about ten."""


@pytest.mark.timeout(240)
def test_simultaneous_pods_fill_the_fewest_possible_cards(
    cluster: ControlPlane, extender: Callable[..., Any], scheduler: Callable[..., Any]
) -> None:
    for number in range(NODES):
        name = f"gpu-{number:03}"
        memory_mib = UNITS_OF_A_CARD * 1024
        made = (
            published_card(at, units=UNITS_OF_A_CARD, memory_mib=memory_mib, uuid=f"{name}-{at}") for at in range(CARDS)
        )
        cluster.add_node(name, cards=cards_annotation(*made))
    for number in range(PODS_AT_ONCE):
        cluster.request_ok("POST", PODS, pod_manifest(f"p{number}", UNITS))
    extender()
    started = time.monotonic()
    scheduler()

    def pods() -> list[dict[str, Any]]:  # Any: pods as the API server shows them
        items: list[dict[str, Any]] = cluster.request_ok("GET", PODS)["items"]
        return items

    cluster.wait_until(
        lambda: all("nodeName" in pod["spec"] for pod in pods()),
        BOUND_SECONDS,
        what="all are bound",
        interval_seconds=0.5,
    )
    sys.stdout.write(f"{PODS_AT_ONCE} pods on {NODES} x {CARDS} cards bound in {time.monotonic() - started:.1f} s\n")
    used = {(pod["spec"]["nodeName"], card["index"]) for pod in pods() for card in read_allocation_record(pod)["cards"]}
    assert len(used) == FULL_CARDS
