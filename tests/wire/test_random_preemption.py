"""On any cluster, what preempt answers is sufficient and minimal, by the oracle's count over every set of pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from extender.preemption import victims as victims_of_a_node
from tests.fakes.api import Object
from tests.support.in_memory_extender import InMemoryExtender
from tests.support.random_clusters import RandomCluster, random_cluster
from tests.wire import oracle
from tests.wire.oracle_annotations import has_record
from tests.wire.oracle_asks import oracle_request

PRIORITY = 5


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**64))
def test_victims_are_sufficient_and_minimal(seed: int) -> None:
    cluster, proposal = a_proposal(seed)
    extender = InMemoryExtender(cluster.nodes, cluster.pods)
    before = extender.state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims_of_a_node, "MAX_SHARED_PODS", 10)  # beyond it the smallest set is not promised
        answer = asyncio.run(extender.preemption.preempt(body_of(cluster, proposal)))
    assert extender.state() == before
    victims = json.loads(answer.body)["NodeNameToMetaVictims"]
    want = {name: uids for name in proposal if (uids := expected(cluster, name, proposal[name]))}
    for name in proposal:
        event("dropped" if name not in want else "as proposed" if want[name] == proposal[name] else "added")
    assert list(victims) == list(want)
    for name, uids in want.items():
        check_node(cluster, name, proposal[name], [pod["UID"] for pod in victims[name]["Pods"]], uids)
        assert victims[name]["NumPDBViolations"] == len(name)


def a_proposal(seed: int) -> tuple[RandomCluster, dict[str, list[str]]]:
    """A random cluster with priorities, and for each node some of its pods that the scheduler might name."""
    cluster, rng = random_cluster(seed), Random(seed)
    cluster.asking["spec"]["priority"] = PRIORITY
    proposal: dict[str, list[str]] = {}
    for pod in cluster.pods:
        pod["spec"]["priority"] = rng.choice((1, 2, 3, 4, 5, 6))
    for name in dict.fromkeys(cluster.names):
        lower = [pod["metadata"]["uid"] for pod in on_node(cluster.pods, name) if pod["spec"]["priority"] < PRIORITY]
        proposal[name] = rng.sample(lower, rng.randint(0, min(len(lower), 2)))
    return cluster, proposal


def body_of(cluster: RandomCluster, proposal: dict[str, list[str]]) -> bytes:
    """In the scheduler's form; the count of each node is the length of its name, to see it come back."""
    victims = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": len(name)} for name, uids in proposal.items()
    }
    return json.dumps({"Pod": cluster.asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}).encode()


def expected(cluster: RandomCluster, name: str, proposed: list[str]) -> list[str] | None:
    """The proposal with the first set, by count and priorities, without which the pod fits; None if there is none."""
    if oracle_request(cluster.asking) is None:
        return proposed
    lower = [
        pod
        for pod in on_node(cluster.pods, name)
        if pod["spec"]["priority"] < PRIORITY and is_live(pod) and pod["metadata"]["uid"] not in proposed
    ]
    sets = [chosen for size in range(len(lower) + 1) for chosen in combinations(lower, size)]
    for chosen in sorted(sets, key=order):
        uids = [pod["metadata"]["uid"] for pod in chosen]
        if fits(cluster, name, [*proposed, *uids]):
            return [*proposed, *uids]
    return None


def check_node(cluster: RandomCluster, name: str, proposed: list[str], answered: list[str], want: list[str]) -> None:
    by_uid = {pod["metadata"]["uid"]: pod for pod in on_node(cluster.pods, name)}
    added = [uid for uid in answered if uid not in proposed]
    assert [uid for uid in answered if uid in proposed] == proposed
    assert len(set(answered)) == len(answered)
    assert all(by_uid[uid]["spec"]["priority"] < PRIORITY for uid in answered)
    assert order([by_uid[uid] for uid in added]) == order([by_uid[uid] for uid in want if uid not in proposed])
    if oracle_request(cluster.asking) is not None:
        assert fits(cluster, name, answered)
        assert not any(fits(cluster, name, [uid for uid in answered if uid != spared]) for spared in added)


def order(pods: Sequence[Object]) -> tuple[int, list[int]]:
    return len(pods), sorted((pod["spec"]["priority"] for pod in pods), reverse=True)


def fits(cluster: RandomCluster, name: str, gone: Iterable[str]) -> bool:
    """Whether the pod fits there once these and the leaving ones are gone."""
    gone = set(gone)
    left = [
        pod
        for pod in cluster.pods
        if pod["metadata"]["uid"] not in gone and not pod["metadata"].get("deletionTimestamp")
    ]
    return bool(oracle.oracle_filter(cluster.nodes, left, cluster.asking, [name], cluster.pods).passed)


def on_node(pods: Iterable[Object], name: str) -> list[Any]:
    """The pods there that hold anything of ours."""
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == name and (oracle_request(pod) is not None or has_record(pod))
    ]


def is_live(pod: Object) -> bool:
    is_finished = pod["status"]["phase"] in ("Succeeded", "Failed")
    return not is_finished and not pod["metadata"].get("deletionTimestamp")
