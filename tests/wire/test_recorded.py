"""Every recorded request is answered as the oracle says, on the cluster it was recorded in and on emptier ones."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.fakes.api import Object
from tests.support import recorded_requests
from tests.support.in_memory_extender import InMemoryExtender
from tests.wire import oracle

LABELLED = {name: index for index, name in enumerate(["filler-0", "binpack-1", "filler-1"])}
SUBSETS = [frozenset(names) for length in range(4) for names in itertools.combinations(LABELLED, length)]
"""Which of the pods of that time are there: all is the recorded cluster, in which nothing is free."""


def some_pods(subset: frozenset[str]) -> list[Object]:
    return [pod for pod in recorded_requests.recorded_pods() if pod["metadata"]["name"] in subset]


@pytest.mark.parametrize("subset", SUBSETS, ids=lambda subset: "+".join(sorted(subset)) or "no pods")
@pytest.mark.parametrize("name", recorded_requests.recording_names("filter", with_node_names=True))
async def test_filter_agrees_with_the_oracle(name: str, subset: frozenset[str]) -> None:
    body = json.loads(recorded_requests.read_recording(name))
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), some_pods(subset))
    want = oracle.oracle_filter(recorded_requests.recorded_nodes(), some_pods(subset), body["Pod"], body["NodeNames"])
    reply = await extender.post_verb("filter", recorded_requests.read_recording(name))
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "Nodes": None,
        "NodeNames": want.passed,
        "FailedNodes": want.later,
        "FailedAndUnresolvableNodes": want.never,
        "Error": "",
    }


@pytest.mark.parametrize("subset", SUBSETS, ids=lambda subset: "+".join(sorted(subset)) or "no pods")
@pytest.mark.parametrize("name", recorded_requests.recording_names("prioritize", with_node_names=True))
async def test_prioritize_agrees_with_the_oracle(name: str, subset: frozenset[str]) -> None:
    body = json.loads(recorded_requests.read_recording(name))
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), some_pods(subset))
    want = oracle.oracle_scores(recorded_requests.recorded_nodes(), some_pods(subset), body["Pod"], body["NodeNames"])
    reply = await extender.post_verb("prioritize", recorded_requests.read_recording(name))
    assert reply.status == 200
    assert reply.json() == [{"Host": host, "Score": score} for host, score in want.items()]


def test_the_recorded_cluster_is_full() -> None:
    """11 + 4 and 15 of 15 units: the oracle itself, by hand."""
    asking = recorded_requests.recorded_pod("filter.ncc-true.scheduler-1.36.3.json")
    verdicts = oracle.oracle_filter(
        recorded_requests.recorded_nodes(), recorded_requests.recorded_pods(), asking, ["gpu-node-1", "gpu-node-0"]
    )
    assert verdicts.passed == []
    assert list(verdicts.later.items()) == [
        ("gpu-node-1", "no card with enough free memory"),
        ("gpu-node-0", "no card with enough free memory"),
    ]
    assert oracle.oracle_scores(
        recorded_requests.recorded_nodes(), some_pods(frozenset({"filler-0"})), asking, ["gpu-node-1", "gpu-node-0"]
    ) == {
        "gpu-node-1": 5,  # 15 free
        "gpu-node-0": 10,  # 15-11 = 4 free: tighter
    }


@pytest.mark.parametrize("name", recorded_requests.recording_names("filter", with_node_names=False))
async def test_filter_with_whole_nodes_is_refused_with_the_setting_to_change(name: str) -> None:
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    reply = await extender.post_verb("filter", recorded_requests.read_recording(name))
    answer = reply.json()
    assert reply.status == 200
    assert "nodeCacheCapable: true" in answer["Error"]
    assert (answer["NodeNames"], answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == ([], {}, {})


@pytest.mark.parametrize("name", recorded_requests.recording_names("prioritize", with_node_names=False))
async def test_prioritize_with_whole_nodes_is_a_bad_request(name: str) -> None:
    reply = await InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods()).post_verb(
        "prioritize", recorded_requests.read_recording(name)
    )
    assert reply.status == 400
    assert "nodeCacheCapable: true" in reply.json()["error"]


@pytest.mark.parametrize(
    "name",
    [
        name
        for verb in ("filter", "prioritize")
        for name in recorded_requests.recording_names(verb)
        if "_ignoredByScheduler" in name
    ],
)
async def test_recorded_headers_change_nothing(name: str) -> None:
    verb = name.partition(".")[0]
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    plain = await extender.post_verb(verb, recorded_requests.read_recording(name), headers=())
    assert (
        await extender.post_verb(verb, recorded_requests.read_recording(name), recorded_requests.read_headers(name))
        == plain
    )


async def test_filter_and_prioritize_change_nothing() -> None:
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), some_pods(frozenset({"filler-0"})))
    before = extender.state()
    for name in [*recorded_requests.recording_names("filter"), *recorded_requests.recording_names("prioritize")]:
        await extender.post_verb(name.partition(".")[0], recorded_requests.read_recording(name))
    assert extender.state() == before
    assert extender.memory.gets == []
