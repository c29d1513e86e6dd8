"""`explain` counts and evaluates as the extender does after a fresh list: against its ledger and its verbs, on any cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.cli.explain.objects import a_bound_pod, a_gpu_node, a_waiting_pod
from tests.fakes.api import FakeKubeApi, Object
from tests.support.in_memory_extender import CONFIGURATION, InMemoryExtender
from tests.support.random_clusters import random_cluster
from vrampack.cards.holding import Hold
from vrampack.cli.explain.cluster import read_cluster
from vrampack.cli.explain.main import MissingPodError, explain_pod
from vrampack.cli.explain.schema import Explanation
from vrampack.kube.api_caller import Resource

PAGE = 3
"""Objects per page, so that small clusters have several."""


class CountedPages(FakeKubeApi):
    """Lists and gets without a network. `then` is the pod from its second get on: something happened meanwhile."""

    def __init__(self, nodes: Iterable[Object], pods: Iterable[Object], then: Object | None = None) -> None:
        super().__init__(pods)
        self.nodes = list(nodes)
        self.then = then

    async def list_page(self, resource: Resource, *, limit: int, token: str = "", **_: object) -> bytes:  # noqa: ARG002 - the real one's shape
        objects = self.nodes if resource == "nodes" else list(self.pods.values())
        start = int(token or 0)
        more = str(start + PAGE) if start + PAGE < len(objects) else ""
        return json.dumps(
            {
                "kind": "List",
                "metadata": {"resourceVersion": "1", "continue": more},
                "items": objects[start : start + PAGE],
            }
        ).encode()

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:  # noqa: ARG002 - the real one's shape
        self.gets.append((namespace, name))
        pod = self.pods.get((namespace, name))
        if self.then is not None and len(self.gets) > 1:
            pod = self.then or None
        return None if pod is None else json.dumps(pod).encode()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**64))
async def test_explain_counts_the_same_holds_as_the_ledger(seed: int) -> None:
    cluster = random_cluster(seed)
    ledger = InMemoryExtender(cluster.nodes, cluster.pods).ledger

    counted = (await read_cluster(CountedPages(cluster.nodes, reversed(cluster.pods)), CONFIGURATION)).nodes

    assert {name: each.node for name, each in counted.items()} == {node.name: node for node in ledger.list_nodes()}
    assert {name: list(map(_describe_hold, each.holds)) for name, each in counted.items()} == {
        name: list(map(_describe_hold, ledger.list_holds(name))) for name in counted
    }


def _describe_hold(hold: Hold) -> tuple[object, ...]:
    return str(hold.pod), hold.pod.record, hold.state, hold.units, hold.unplaced_reason


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**64))
async def test_explain_judges_every_node_as_filter_and_prioritize_do(seed: int) -> None:
    cluster = random_cluster(seed)
    asking = cluster.asking
    extender = InMemoryExtender(cluster.nodes, [*cluster.pods, asking])
    names = [node["metadata"]["name"] for node in cluster.nodes]
    body = json.dumps({"Pod": asking, "NodeNames": names}).encode()
    filtered, scores = (json.loads(verb(body).body) for verb in (extender.verbs.filter, extender.verbs.prioritize))

    api = CountedPages(cluster.nodes, [*cluster.pods, asking])
    explanation = await explain_pod(api, CONFIGURATION, asking["metadata"]["namespace"], asking["metadata"]["name"])

    event(explanation.pod.state)
    if explanation.pod.state == "asks-nothing":
        assert filtered["NodeNames"] == names
        return
    said = {**filtered["FailedNodes"], **filtered["FailedAndUnresolvableNodes"]}
    assert explanation.reasons == Counter(said.values())
    assert explanation.node_count == len(names)
    assert len(explanation.nodes) + explanation.nodes_without_memory == len(names)
    for node in explanation.nodes:
        event(node.reason or "fits")
        assert node.reason == said.get(node.name)
        assert node.never == (node.name in filtered["FailedAndUnresolvableNodes"])
    assert (explanation.choice.node if explanation.choice else None) == best_of(explanation, scores)
    assert explanation.next or explanation.choice


def best_of(explanation: Explanation, scores: list[dict[str, Any]]) -> str | None:
    """Prioritize's best of the nodes that filter and the scheduler pass."""
    open_to_it = [node.name for node in explanation.nodes if node.reason is None and not node.obstacles]
    ranking = sorted(scores, key=lambda each: -int(each["Score"]))
    return next((each["Host"] for each in ranking if each["Host"] in open_to_it), None)


def on_one_card(units: int) -> tuple[list[Object], list[Object]]:
    return [a_gpu_node("gpu-1")], [a_bound_pod("a", "gpu-1", {0: 8}), a_waiting_pod(units=units)]


async def explained(api: CountedPages) -> Explanation:
    return await explain_pod(api, CONFIGURATION, "default", "w")


async def test_a_pod_that_is_bound_while_the_cluster_is_read_is_explained_as_bound() -> None:
    nodes, pods = on_one_card(4)
    explanation = await explained(CountedPages(nodes, pods, then=a_bound_pod("w", "gpu-1", {0: 4})))
    assert explanation.headline == "Pod default/w is bound and holds 4 units (4 GiB) on 1 card of gpu-1."


async def test_pod_deleted_while_the_cluster_is_read_is_reported_as_missing() -> None:
    nodes, pods = on_one_card(4)
    with pytest.raises(MissingPodError):
        await explained(CountedPages(nodes, pods, then={}))


SPOILT: dict[str, Any] = {"metadata": {"name": "spoilt", "namespace": "default", "uid": "s"}, "spec": 7, "status": {}}


async def test_an_object_that_cannot_be_decoded_is_named_and_hides_no_other() -> None:
    nodes, pods = on_one_card(8)
    explanation = await explained(CountedPages([SPOILT, *nodes], [SPOILT, *pods]))
    assert explanation.node_count == 1
    assert explanation.nodes[0].cards[0].missing_units == 1
    assert [text.partition(":")[0] for text in explanation.findings if "decoded" in text] == [
        "a node cannot be decoded and is left out",
        "a pod cannot be decoded and is left out",
    ]
