"""The recorded preempt calls, in both forms: on the recorded cluster each proposal frees a card and comes back as uids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.api import Object
from tests.support import recorded_requests
from tests.support.in_memory_extender import InMemoryExtender

META = "preempt.ncc-true_ignoredByScheduler-false.json"
FULL = "preempt.ncc-false_ignoredByScheduler-false.json"
NOMINATED = "filter.after-preemption-nominated.ncc-true.json"


def proposed(name: str) -> dict[str, list[str]]:
    """Uids by node."""
    body = json.loads(recorded_requests.read_recording(name))
    if body["NodeNameToMetaVictims"] is not None:
        return {node: [pod["UID"] for pod in each["Pods"]] for node, each in body["NodeNameToMetaVictims"].items()}
    victims = body["NodeNameToVictims"].items()
    return {node: [pod["metadata"]["uid"] for pod in each["Pods"]] for node, each in victims}


def answered(reply: Any) -> dict[str, list[str]]:  # noqa: ANN401 - the answer as JSON
    assert list(reply) == ["NodeNameToMetaVictims"]
    for victims in reply["NodeNameToMetaVictims"].values():
        assert set(victims) == {"Pods", "NumPDBViolations"}
        assert all(set(pod) == {"UID"} for pod in victims["Pods"])
    return {node: [pod["UID"] for pod in each["Pods"]] for node, each in reply["NodeNameToMetaVictims"].items()}


def pods_of(name: str) -> list[Object]:
    """The pods of that time under the uids that this recording names: each was made on a cluster of its own."""
    pods = recorded_requests.recorded_pods()
    uids = [uid for on_node in proposed(name).values() for uid in on_node]
    for pod, uid in zip(pods, uids, strict=True):
        pod["metadata"]["uid"] = uid
    return pods


@pytest.mark.parametrize("name", [META, FULL])
async def test_victims_that_free_a_card_come_back_as_uids(name: str) -> None:
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), pods_of(name))
    before = extender.state()
    reply = await extender.post_verb(
        "preempt", recorded_requests.read_recording(name), recorded_requests.read_headers(name)
    )
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert answered(reply.json()) == proposed(name)
    assert extender.state() == before


@pytest.mark.parametrize("name", [META, FULL])
async def test_an_insufficient_proposal_is_completed_from_the_ledger(name: str) -> None:
    """12 of 15 are asked: of 11 + 4 on gpu-node-0 both must go, whichever one is proposed."""
    body = json.loads(recorded_requests.read_recording(name))
    for victims in (body["NodeNameToMetaVictims"] or body["NodeNameToVictims"]).values():
        del victims["Pods"][1:]
    reply = await InMemoryExtender(recorded_requests.recorded_nodes(), pods_of(name)).post_verb(
        "preempt", json.dumps(body).encode()
    )
    assert answered(reply.json()) == proposed(name)


async def test_filter_passes_the_nominated_node_once_its_victim_is_gone() -> None:
    """Filter is called for that node alone: it rejects it while the victim of 15 units is there or leaving, then passes it."""
    victim = next(pod for pod in recorded_requests.recorded_pods() if pod["spec"]["nodeName"] == "gpu-node-1")
    leaving = {**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    for pods, passed in (([victim], []), ([leaving], []), ([], ["gpu-node-1"])):
        reply = (
            await InMemoryExtender(recorded_requests.recorded_nodes(), pods).post_verb(
                "filter", recorded_requests.read_recording(NOMINATED)
            )
        ).json()
        assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (passed, {})
