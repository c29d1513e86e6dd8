"""`GET /explain`: what the running service says of a waiting pod, or of a request that no pod makes yet."""

from __future__ import annotations

from dataclasses import replace

from tests.extender.scheduler_harness import SchedulerHarness
from tests.support.builders import ledger_pod
from tests.support.in_memory_extender import PREFIX, AsgiReply, InMemoryExtender, call_asgi
from tests.support.manifest_builders import cards_annotation, published_card


def start_extender() -> InMemoryExtender:
    node = {
        "metadata": {"name": "n", "annotations": {"vrampack.dev/cards": cards_annotation(published_card(0))}},
        "status": {},
    }
    return InMemoryExtender([node])


async def ask(extender: InMemoryExtender, query: str) -> AsgiReply:
    return await call_asgi(extender.app, "GET", f"{PREFIX}/explain", query=query.encode())


async def test_a_request_is_explained_node_by_node() -> None:
    reply = await ask(start_extender(), "units=4")
    shown = reply.json()
    assert (reply.status, shown["policy"], shown["generation"]) == (200, "binpack", 1)
    assert shown["nodes"] == [
        {
            "name": "n",
            "reason": None,
            "score": -15,
            "terms": [{"name": "free on card 0", "value": -15}],
            "chosen": [0],
            "cards": [
                {
                    "index": 0,
                    "uuid": "GPU-0",
                    "model": "Tesla V100-SXM2-16GB",
                    "freeUnits": 15,
                    "totalUnits": 15,
                    "reason": None,
                    "missingUnits": 0,
                }
            ],
        }
    ]


async def test_a_waiting_pod_is_explained_by_its_name() -> None:
    extender = start_extender()
    extender.ledger.update_pod(ledger_pod("w", units=16))
    for name in ("w", "default/w"):
        shown = (await ask(extender, f"pod={name}")).json()
        assert (shown["name"], shown["units"], shown["nodes"][0]["reason"]) == ("w", 16, "larger than any card")


def test_all_nodes_are_explained_for_the_pods_own_priority() -> None:
    """The pod is deleted between two nodes; a card is kept on each for a less important one."""
    desk = SchedulerHarness({"a": [15], "b": [15]})
    for node in ("a", "b"):
        nominee = ledger_pod(f"nominated to {node}", units=15, priority=10)
        desk.ledger.update_pod(replace(nominee, nominated_node=node))
    pod = desk.add_pending_pod("w", priority=11)
    assert pod.request is not None
    shown = desk.parts.explain_view.describe_nodes(pod, pod.request)
    first = next(shown)
    desk.ledger.remove_pod("w")
    assert [node["reason"] for node in (first, *shown)] == [None, None]


async def test_a_request_that_cannot_be_explained_is_refused_with_a_reason() -> None:
    extender = start_extender()
    for query, status, text in (
        ("pod=ml/w", 404, "no waiting pod ml/w requests GPU memory"),
        ("", 400, "give pod=NAMESPACE/NAME, or units=N with count, whole and namespace"),
        ("units=four", 400, "give pod=NAMESPACE/NAME, or units=N with count, whole and namespace"),
        ("units=0", 400, "units and count begin at 1"),
    ):
        reply = await ask(extender, query)
        assert (reply.status, reply.json()) == (status, {"error": text})


async def test_several_cards_are_chosen_from_one_published_numa_node() -> None:
    """Four empty cards, of NUMA nodes 0, 1, 0, 1."""
    cards = [published_card(index, numa=index % 2) for index in range(4)]
    node = {"metadata": {"name": "n", "annotations": {"vrampack.dev/cards": cards_annotation(*cards)}}, "status": {}}
    (shown,) = (await ask(InMemoryExtender([node]), "units=4&count=2")).json()["nodes"]
    assert shown["chosen"] == [0, 2]
