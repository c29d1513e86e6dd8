"""Pods of an `AgentHarness`: bound by an extender or forged, run on its kubelet, reported, removed; and the ledger recounted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.agent.agent_harness import NODE, AgentHarness
from tests.fakes.kubelet.pods import KubeletPod, kubelet_pod
from tests.fakes.kubelet.starting import StartedContainer, WaitingContainer
from vrampack.agent.admission.fence import Fence
from vrampack.cards.node import Node
from vrampack.cards.records import Record

REPLICASET: Mapping[str, Any] = {"kind": "ReplicaSet", "controller": True, "name": "r", "apiVersion": "apps/v1"}


def put_bound_pod(  # what a pod may be
    world: AgentHarness,
    name: str,
    *,
    cards: Sequence[int] = (0,),
    labels: Mapping[str, str] | None = None,
    uid: str = "",
    owner: Mapping[str, Any] | None = REPLICASET,
    change: Mapping[str, str | None] | None = None,
    bound_at: int = 1,
    node: str = NODE,
    is_recorded: bool = True,
    room: Node | None = None,
    **fields: Any,  # noqa: ANN401 - the builder's own
) -> KubeletPod:
    """A pod bound to these cards, as the API server has it; `change` forges annotations, None takes one away."""
    pod = kubelet_pod(name, **fields)
    metadata = pod.spec["metadata"]
    metadata["labels"] = dict(labels or {})
    metadata["uid"] = uid or f"uid-{name}"
    metadata["ownerReferences"] = [dict(owner)] if owner else []
    pod.spec["spec"]["nodeName"] = node
    if is_recorded:
        pod.annotations.update(world.records_of(pod, cards, room))
        pod.annotations["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] = str(bound_at)
    for key, value in (change or {}).items():
        pod.annotations[key] = value or ""
        if value is None:
            del pod.annotations[key]
    world.api.restore({"apiVersion": "v1", "kind": "Pod", **pod.manifest()})
    return pod


async def run_pod(world: AgentHarness, pod: KubeletPod, *containers: str) -> StartedContainer:
    """Admit it and start these containers (`main` where none is named); what the last one got."""
    assert await world.kubelet.admit(pod), pod.message
    started = [await start_container(world, pod, name) for name in containers or ("main",)]
    report_status(world, pod)
    return started[-1]


async def start_container(world: AgentHarness, pod: KubeletPod, container: str = "main") -> StartedContainer:
    """Start it; it must not be refused."""
    outcome = await world.kubelet.try_start(pod, container)
    assert isinstance(outcome, StartedContainer), outcome
    return outcome


async def start_refused(world: AgentHarness, pod: KubeletPod, container: str = "main") -> str:
    """Try to start it; the reason why it is refused."""
    if pod.uid not in world.kubelet.pods:
        assert await world.kubelet.admit(pod), pod.message
    outcome = await world.kubelet.try_start(pod, container)
    assert isinstance(outcome, WaitingContainer), outcome
    assert outcome.reason == "CreateContainerConfigError"
    report_status(world, pod)
    return outcome.message


async def restart_container(world: AgentHarness, pod: KubeletPod, container: str = "main") -> StartedContainer:
    """The container ended and kubelet starts it again."""
    world.kubelet.exit(pod, container)
    return await start_container(world, pod, container)


def report_status(world: AgentHarness, pod: KubeletPod) -> None:
    """What kubelet tells the API server of it."""
    world.api.patch("pods", pod.name, {"status": pod.manifest()["status"]}, is_status=True)


def remove_pod(world: AgentHarness, pod: KubeletPod) -> None:
    """Deleted, and its containers are gone."""
    world.kubelet.remove(pod)
    world.api.delete("pods", pod.name, grace_seconds=0)


def fence_of(world: AgentHarness) -> Fence:
    return world.agent.components.fence


def recount_cards(world: AgentHarness) -> Counter[str]:
    """Units by card of all pods of which a container was made, by what their records say."""
    indices = {card.index: card.uuid or "" for card in world.read_node().cards}
    total: Counter[str] = Counter()
    for pod in world.agent.components.pod_cache.list_pods():
        if pod.started_containers and isinstance(pod.pod.record, Record):
            for share in pod.pod.record.shares:
                total[share.uuid or indices[share.index or 0]] += share.units
    return total


async def assert_fence_agrees(world: AgentHarness) -> None:
    """The fence's ledger becomes equal to a count from the API server's pods."""

    def is_seen() -> bool:
        shown = {pod.pod.uid: pod.started_containers for pod in world.agent.components.pod_cache.list_pods()}
        real = {
            pod.uid: {name for name, state in pod.states.items() if state.container_id}
            for pod in world.kubelet.pods.values()
            if pod.is_active
        }
        return {uid: started for uid, started in shown.items() if started} == {
            uid: started for uid, started in real.items() if started
        }

    await world.wait_until(is_seen)
    await world.wait_until(lambda: fence_of(world).count_held_units() == recount_cards(world))


def count_refusals(world: AgentHarness, reason: str) -> float:
    """How often a start was refused for this reason."""
    return world.read_metric("vrampack_agent_starts_total", result=reason)


def change_limit(world: AgentHarness, pod: KubeletPod, mib: int, /, **more: object) -> None:
    """As an account with the right does: the record, and the annotation from which the environment is made."""
    record = json.loads(pod.annotations["vrampack.dev/allocation"])
    record["containers"]["main"][0] |= {"mib": mib, **more}
    changed = {"vrampack.dev/allocation": json.dumps(record), "limit-mib.vrampack.dev/main": str(mib)}
    world.api.patch("pods", pod.name, {"metadata": {"annotations": changed}})
