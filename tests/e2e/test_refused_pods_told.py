"""A refused pod's condition on a real API server: it survives the scheduler's own, and wakes no other pod."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.activations import create_pod, wait_until_bound
from tests.e2e.transcripts import read_verb_calls
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, published_card

Start = Callable[..., Any]
CONDITION = "VrampackPlacement"


def wait_until_told(cluster: ControlPlane, name: str) -> str:
    """The condition's message."""

    def read_message() -> str:
        conditions = cluster.request_ok("GET", f"{PODS}/{name}")["status"].get("conditions", [])
        return next((str(each["message"]) for each in conditions if each["type"] == CONDITION), "")

    return cluster.wait_until(read_message, what=f"{name} is told why")


def test_a_condition_has_its_own_pod_tried_once_more_and_no_other(
    cluster: ControlPlane, extender: Start, scheduler: Start, transcript: Path
) -> None:
    """12 of 15 units are held. Each pod is tried when it comes, and after its scheduler's condition and ours: three times."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    extender()
    scheduler()
    for name in ("held-0", "held-1"):
        wait_until_bound(cluster, create_pod(cluster, name, 9))

    def count_filters(name: str) -> int:
        return sum(call.verb == "filter" for call in read_verb_calls(transcript).get(name, ()))

    calls: list[int] = []
    for name in ("first", "second", "third"):
        assert "at most 6 free on one card, 2 missing" in wait_until_told(cluster, create_pod(cluster, name, 8))
        calls.append(count_filters("first"))
    assert calls[1] == calls[2] <= 3
    assert count_filters("second") <= 3
    conditions = cluster.request_ok("GET", f"{PODS}/first")["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {"PodScheduled": "False", CONDITION: "False"}
