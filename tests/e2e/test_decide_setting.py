"""`decide: auto` under the real scheduler: which pods get one call, which get scores too, and whose choice of node holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_cluster import SCHEDULER, installed_configuration
from tests.e2e.pod_placements import wait_until_bound
from tests.e2e.transcripts import VerbCallLine, read_verb_calls
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card

Start = Callable[..., Any]
Pod = dict[str, Any]  # Any: a pod as the API server takes it

AUTO = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\ndecide: auto\n"
MERGE = "application/merge-patch+json"
BEST, SECOND, SPLIT = "best", "second", "split"
APP = {"app": "x"}
ON_SECOND = {
    "weight": 1,
    "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [SECOND]}]},
}
BESIDE_NONE = {
    "weight": 100,
    "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": APP}},
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": APP},
}


@pytest.fixture
def nodes(cluster: ControlPlane) -> None:
    """For 4 units: the first is tighter than the second, and no card of the third takes them, which has 9 in all."""
    for name, sizes in ((BEST, [8]), (SECOND, [15]), (SPLIT, [3, 3, 3])):
        published = (
            published_card(index, units=units, memory_mib=units * 1024, uuid=f"{name}-{index}")
            for index, units in enumerate(sizes)
        )
        cluster.add_node(name, cards=cards_annotation(*published))


def preferring(name: str, *, much: bool) -> Pod:
    """A pod that would like the second node: in one way, or in three."""
    pod = pod_manifest(name, 4, labels=APP)
    pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [ON_SECOND]}}
    if much:
        apart = {"preferredDuringSchedulingIgnoredDuringExecution": [BESIDE_NONE]}
        pod["spec"]["affinity"]["podAntiAffinity"] = apart
        pod["spec"]["topologySpreadConstraints"] = [SPREAD]
    return pod


def called(cluster: ControlPlane, transcript: Path, name: str) -> list[VerbCallLine]:
    """All calls about a pod that is bound; the bind is written down a moment after the API shows what it did."""
    cluster.wait_until(
        lambda: verbs(read_verb_calls(transcript)[name])[-1:] == ["bind"], what=f"the bind of {name} is written down"
    )
    return read_verb_calls(transcript)[name]


def verbs(made: list[VerbCallLine]) -> list[str]:
    return [call.verb for call in made]


@pytest.mark.usefixtures("nodes")
def test_a_plain_pod_costs_one_filter_call(
    cluster: ControlPlane, extender: Start, scheduler: Start, transcript: Path
) -> None:
    extender(configuration=AUTO)
    scheduler()
    cluster.request_ok("POST", PODS, pod_manifest("plain", 4))

    assert wait_until_bound(cluster, "plain")["spec"]["nodeName"] == BEST
    made = called(cluster, transcript, "plain")
    assert verbs(made) == ["filter", "bind"]
    assert sorted(made[0].request["NodeNames"]) == [BEST, SECOND, SPLIT]
    assert made[0].answer["NodeNames"] == [BEST]


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("much", "node"), [(False, BEST), (True, SECOND)], ids=["once", "in three ways"])
def test_a_pod_that_prefers_nodes_is_scored(
    cluster: ControlPlane,
    extender: Start,
    scheduler: Start,
    transcript: Path,
    much: bool,  # noqa: FBT001 - a table
    node: str,
) -> None:
    """Ours adds 1000 to the best node and 500 to the next; each preference adds 200 in the shipped profile."""
    extender(configuration=AUTO)
    scheduler()
    cluster.request_ok("POST", PODS, pod_manifest("first", 4, labels=APP))
    assert wait_until_bound(cluster, "first")["spec"]["nodeName"] == BEST
    cluster.request_ok("POST", PODS, preferring("prefers", much=much))

    assert wait_until_bound(cluster, "prefers")["spec"]["nodeName"] == node
    made = called(cluster, transcript, "prefers")
    assert verbs(made) == ["filter", "prioritize", "bind"]
    assert sorted(made[0].answer["NodeNames"]) == [BEST, SECOND]
    assert scores(made[1]) == {BEST: 10, SECOND: 5}


@pytest.mark.usefixtures("nodes")
def test_node_preference_decides_where_the_operator_lowers_our_weight(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """With weight 1 ours adds 100 and 50: a single preference of 200 wins."""
    extender(configuration=AUTO)
    scheduler(configuration=installed_configuration(cluster, SCHEDULER).replace("weight: 10\n", "weight: 1\n"))
    cluster.request_ok("POST", PODS, preferring("prefers", much=False))

    assert wait_until_bound(cluster, "prefers")["spec"]["nodeName"] == SECOND


@pytest.mark.usefixtures("nodes")
def test_filter_accepts_or_rejects_a_nominated_node_by_itself(
    cluster: ControlPlane, extender: Start, scheduler: Start, transcript: Path
) -> None:
    """The scheduler asks about the nominated node alone. After yes it takes that node even if another is better; after no it asks about all."""
    cluster.request_ok("POST", PODS, pod_manifest("no", 4))
    nominate(cluster, "no", SPLIT)
    gated = pod_manifest("yes", 4)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/nominated"}]
    cluster.request_ok("POST", PODS, gated)
    nominate(cluster, "yes", SECOND)
    extender(configuration=AUTO)
    scheduler()
    wait_until_bound(cluster, "no")  # one after the other: which node is best depends on the pods that are there
    cluster.request_ok("PATCH", f"{PODS}/yes", {"spec": {"schedulingGates": None}}, content_type=MERGE)
    wait_until_bound(cluster, "yes")

    asked = {name: [summary(call) for call in called(cluster, transcript, name)] for name in ("no", "yes")}
    assert asked == {
        "no": [("filter", [SPLIT], []), ("filter", [BEST, SECOND, SPLIT], [BEST]), ("bind", BEST, "")],
        "yes": [("filter", [SECOND], [SECOND]), ("bind", SECOND, "")],
    }


def nominate(cluster: ControlPlane, name: str, node: str) -> None:
    """As a scheduler that made room there, or another component that knows."""
    body = {"status": {"nominatedNodeName": node}}
    cluster.request_ok("PATCH", f"{PODS}/{name}/status", body, content_type=MERGE)


def summary(call: VerbCallLine) -> tuple[str, Any, Any]:
    """A filter call with the nodes asked about and those that passed, or a bind with its node and its error, None where there was no answer."""
    if call.verb == "bind":
        return call.verb, call.request["Node"], call.answer and call.answer["Error"]
    return call.verb, sorted(call.request["NodeNames"]), call.answer["NodeNames"] or []


def scores(call: VerbCallLine) -> dict[str, int]:
    return {each["Host"]: each["Score"] for each in call.answer}
