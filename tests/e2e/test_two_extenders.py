"""Two extenders that are both called, which the shipped install never does: what one cannot know of the other is flagged.

Each answers truly and counts truly; they see one another's binds on the watch alone. So a card can be sold twice, is
reported by metric and event within 5 s, and gets no further pod from either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.auditor.audit import audit_objects
from tests.auditor.terms import Violation
from tests.e2e.auditing import wait_until_recounted
from tests.e2e.extender_pairs import start_two_extenders
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import count_pending_pods, post_bind, read_ledger_states, read_metric
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import LOOPBACK

FLAGGED_SECONDS = 5
PODS_AT_ONCE = 64
CARDS = 4

Both = tuple[ExtenderProgram, ExtenderProgram]


@pytest.fixture
def both(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread, transcript: Path
) -> Iterator[Both]:
    with start_two_extenders(extender, transcript, api=(LOOPBACK, api_proxy.port)) as pair:
        yield pair
        api_proxy.clear()


def create_seen_pods(cluster: ControlPlane, both: Both, *names: str, units: int) -> list[Any]:
    """New pods that both have seen."""
    before = count_pending_pods(both[0])
    pods = [cluster.request_ok("POST", PODS, pod_manifest(name, units)) for name in names]
    for each in both:
        cluster.wait_until(lambda each=each: count_pending_pods(each) == before + len(names), what="seen")  # type: ignore[misc]
    return pods


def find_oversold_cards(cluster: ControlPlane) -> list[Violation]:
    """The cards that hold more than they have and who holds them, as the auditor counts."""
    pods, nodes = (cluster.request_ok("GET", f"/api/v1/{kind}")["items"] for kind in ("pods", "nodes"))
    return [each for each in audit_objects(pods, nodes) if each.invariant == "I1"]


def wait_flagged(cluster: ControlPlane, both: Both, count: int) -> None:
    """Both count so many cards over, and the node carries the event if there is any."""

    def reasons() -> set[str]:
        events = cluster.request_ok("GET", "/api/v1/namespaces/default/events")["items"]
        return {each["reason"] for each in events if each["involvedObject"]["kind"] == "Node"}

    def flagged() -> bool:
        counted = {read_metric(each, "vrampack_overcommitted_cards") for each in both}
        return counted == {count} and (not count or "GPUMemoryOvercommitDetected" in reasons())

    cluster.wait_until(flagged, FLAGGED_SECONDS, what=f"{count} cards are flagged")


def test_a_card_that_both_sold_is_flagged_and_gets_no_further_pod(
    cluster: ControlPlane, both: Both, api_proxy: FaultProxyThread, excused: list[str]
) -> None:
    """Neither sees the other's bind, until both do."""
    excused.append("node gpu-0 card 0")
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    a, b, small, more = create_seen_pods(cluster, both, "a", "b", "small", "more", units=8)
    api_proxy.freeze_watches()
    assert [post_bind(both[0], a, "gpu-0"), post_bind(both[1], b, "gpu-0")] == ["", ""]
    api_proxy.thaw_watches()

    wait_flagged(cluster, both, 1)

    assert [each.object for each in find_oversold_cards(cluster)] == ["node gpu-0 card 0"]
    for each, pod in zip(both, (small, more), strict=True):
        assert "no card with enough free memory" in post_bind(each, pod, "gpu-0")
        assert read_ledger_states(each) == {"a on gpu-0/0": "bound, 8", "b on gpu-0/0": "bound, 8"}
        wait_until_recounted(cluster, each)


def test_sixty_four_simultaneous_binds_are_answered_correctly(
    cluster: ControlPlane, both: Both, excused: list[str]
) -> None:
    """4 cards of 15 hold 12 pods of 4; what goes beyond is a card that both sold."""
    cluster.add_node("gpu-0", cards=cards_annotation(*(published_card(index) for index in range(CARDS))))
    random = Random(64)
    pods = create_seen_pods(cluster, both, *(f"p{number}" for number in range(PODS_AT_ONCE)), units=4)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda pod: post_bind(random.choice(both), pod, "gpu-0"), pods))

    sold_twice = find_oversold_cards(cluster)
    excused += [each.object for each in sold_twice]
    sys.stdout.write(f"bound {answers.count('')} of {PODS_AT_ONCE}; {len(sold_twice)} cards over\n")
    assert answers.count("") >= CARDS * 3
    wait_flagged(cluster, both, len(sold_twice))
    for each in both:
        wait_until_recounted(cluster, each)
    # every small pod that finds a place finds it on a card that is not over
    for number, pod in enumerate(create_small_pods(cluster, both)):
        post_bind(both[number % 2], pod, "gpu-0")
        cluster.wait_until(lambda: read_ledger_states(both[0]) == read_ledger_states(both[1]), what="both have seen it")
    assert find_oversold_cards(cluster) == sold_twice


def create_small_pods(cluster: ControlPlane, both: Both) -> list[Any]:
    return create_seen_pods(cluster, both, *(f"small{number}" for number in range(6)), units=1)
