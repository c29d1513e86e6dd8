"""An extender and agents of two versions: no start is refused, and no pod is evicted; what an agent cannot do is not sent there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.e2e import older_programs
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.node_agent import NodeAgent, run_agent
from tests.e2e.verb_calls import read_metric
from tests.fakes.kubelet.starting import StartedContainer
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, RESOURCE, cards_annotation, pod_manifest, published_card
from tests.support.processes import ManagedProcess
from vrampack.cards import well_known

NODE = "gpu-0"
OLDER_EXTENDER = (sys.executable, older_programs.__file__)
MERGE = "application/merge-patch+json"
PAIR = {"aliyun.com/gpu-count": "2"}
WHOLE = {"ack.gpushare.placement": "require-whole-device"}
MIXES: Mapping[str, tuple[bool, bool]] = {
    "a newer extender": (False, True),
    "newer agents": (True, False),
}


def a_pod(name: str, *units: int, **metadata: Any) -> Any:  # noqa: ANN401 - a manifest
    """One container for each of `units`."""
    pod = pod_manifest(name, units[0], **metadata)
    (first,) = pod["spec"]["containers"]
    others = [
        first | {"name": f"side{at}", "resources": {"limits": {RESOURCE: each}}} for at, each in enumerate(units[1:])
    ]
    pod["spec"]["containers"] += others
    return pod


def create_pods(cluster: ControlPlane, *pods: Any) -> None:  # noqa: ANN401 - manifests
    for pod in pods:
        cluster.request_ok("POST", PODS, pod)


def wait_bound(cluster: ControlPlane, names: Sequence[str]) -> None:
    def list_unbound() -> list[str]:
        bound = {
            each["metadata"]["name"] for each in cluster.request_ok("GET", PODS)["items"] if "nodeName" in each["spec"]
        }
        return [name for name in names if name not in bound]

    cluster.wait_until(lambda: not list_unbound(), 20, what=lambda: f"bound: {list_unbound()}")


def wait_refused(cluster: ControlPlane, name: str, reason: str) -> None:
    def read_messages() -> list[str]:
        conditions = cluster.request_ok("GET", f"{PODS}/{name}").get("status", {}).get("conditions", ())
        return [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]

    cluster.wait_until(
        lambda: any(reason in message for message in read_messages()), 20, what=lambda: f"{reason}: {read_messages()}"
    )


async def start_all(node: NodeAgent, names: Sequence[str]) -> None:
    for name in names:
        started = await node.start_pod(f"{PODS}/{name}")
        assert all(isinstance(each, StartedContainer) for each in started), (name, started)


def check_nothing_evicted(cluster: ControlPlane, node: NodeAgent, ours: ExtenderProgram, names: Sequence[str]) -> None:
    assert node.read_annotation(well_known.NODE_REFUSED) is None
    assert read_metric(ours, 'vrampack_evictions_total{result="evicted"}') == 0
    kept = cluster.request_ok("GET", PODS)["items"]
    assert {each["metadata"]["name"] for each in kept if "deletionTimestamp" not in each["metadata"]} == set(names)


@pytest.mark.parametrize(("is_extender_older", "is_agent_older"), MIXES.values(), ids=MIXES)
async def test_pods_of_every_kind_start_while_one_side_is_older(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_extender_older: bool,
    is_agent_older: bool,
) -> None:
    if is_agent_older:
        monkeypatch.setattr("vrampack.agent.status.card_publisher.write_cards", older_programs.write_cards_as_before)
    ours = extender(**({"command": (*OLDER_EXTENDER, "serve")} if is_extender_older else {}))
    scheduler()
    async with run_agent(cluster, NODE, cards_mib=(16384, 16384, 16384)) as node:
        assert ("serves" in json.loads(node.read_annotation() or "")) is not is_agent_older
        pods = (
            a_pod("whole", 16, labels=WHOLE),
            a_pod("pair", 4, labels=PAIR),
            a_pod("several", 2, 1),
            a_pod("one", 3),
        )
        names = [pod["metadata"]["name"] for pod in pods]
        for pod in pods:  # the whole card first, while one is empty
            await asyncio.to_thread(create_pods, cluster, pod)
            await asyncio.to_thread(wait_bound, cluster, [pod["metadata"]["name"]])
        await start_all(node, names)
        await asyncio.to_thread(check_nothing_evicted, cluster, node, ours, names)


async def test_a_pod_waits_for_a_free_instance_and_starts_with_it(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
) -> None:
    """The card has memory for 15 pods and 3 instances. It used to be placed, refused and evicted, and so was its successor."""
    ours = extender()
    scheduler()
    async with run_agent(cluster, NODE, cards_mib=(16130,), max_instances={0: 3}) as node:
        pods = [a_pod(f"p{at}", 1) for at in range(3)]
        names = [pod["metadata"]["name"] for pod in pods]
        await asyncio.to_thread(create_pods, cluster, *pods)
        await asyncio.to_thread(wait_bound, cluster, names)
        await start_all(node, names)
        await asyncio.to_thread(create_pods, cluster, a_pod("late", 1))
        await asyncio.to_thread(wait_refused, cluster, "late", "card has as many containers as its node can limit")
        assert len(node.module.instances) == 3
        await asyncio.to_thread(check_nothing_evicted, cluster, node, ours, [*names, "late"])
        await asyncio.to_thread(cluster.request_ok, "DELETE", f"{PODS}/p0", {"gracePeriodSeconds": 0})
        await asyncio.to_thread(wait_bound, cluster, ["late"])


def test_a_request_goes_only_to_agents_that_understand_it(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    cards = [published_card(at) for at in range(2)]
    cluster.add_node(NODE, cards=cards_annotation(*cards, serves=["memory"]))
    extender()
    scheduler()
    create_pods(cluster, a_pod("pair", 4, labels=PAIR), a_pod("one", 3))
    wait_bound(cluster, ["one"])
    wait_refused(cluster, "pair", "agent too old for this request")
    upgraded = {
        "metadata": {
            "annotations": {well_known.NODE_CARDS: cards_annotation(*cards, serves=["memory", "several-cards"])}
        }
    }
    cluster.request_ok("PATCH", f"/api/v1/nodes/{NODE}", upgraded, content_type=MERGE)
    wait_bound(cluster, ["pair"])
