"""A cluster whose pods are placed through the extender as in a real cluster: with its program, HTTP, and an API server.

For each pod: the scheduler's own filters and sampling, filter, prioritize, bind; the Binding comes back on the watch. Pods without
cards never reach the extender: the scheduler's own plug-ins place them (`scheduler_choice.py`). No pod is tried twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from extender.app import Extender, ExtenderOptions
from extender.metrics import ExtenderMetrics
from extender.policy_settings import PolicyTuning
from extender.settings import DeadlineSettings, ExtenderConfiguration, ListenSettings
from vrampack.cards import well_known
from vrampack.cards.host_room import HostResources
from vrampack.cards.tuned_policy import TunedPolicy
from vrampack.config.addresses import parse_address
from vrampack.http.listener import open_listener
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.objects import build_admission_entry
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig
from vrampack.simulator.packing.packed_cluster import SimulatedNode, SimulatedPod
from vrampack.simulator.packing.scheduler_choice import SchedulerChoice
from vrampack.simulator.resource_kinds import Object
from vrampack.simulator.scheduling.extender_client import ExtenderClient, ExtenderError
from vrampack.simulator.scheduling.settings import SchedulerSettings

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.02
TIMEOUT_SECONDS = 3600.0
"""How long a run may be suspended in the middle of a call."""
MAX_FAILURES = 15_000
"""Five minutes of retries: the API server says nothing for a minute about nodes, which do not change here."""
CONTAINER = "main"

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class HttpCluster:
    """Nodes of one model each, with hosts. The caller must close it, as it has listeners and tasks."""

    def __init__(self, nodes: Sequence[SimulatedNode], policy: TunedPolicy, random: Random) -> None:
        hosts = {node.name: node.host for node in nodes if node.host is not None}
        self._choice = SchedulerChoice(hosts, random, {node.name: sum(node.card_units) for node in nodes})
        self._stack = AsyncExitStack()
        self._runner = asyncio.Runner()
        self._runner.run(self._start(nodes, policy))

    def place_pod(self, uid: str, pod: SimulatedPod) -> str | None:
        """The node that the pod was bound to; None if it fits on none that the scheduler considered."""
        return self._runner.run(self._place_pod(uid, pod))

    def close(self) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    async def _start(self, nodes: Sequence[SimulatedNode], policy: TunedPolicy) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vrampack-")))
        self._api = await self._stack.enter_async_context(ApiServer())
        for node in nodes:
            self._api.create(build_node_object(node))
        settings = ExtenderConfiguration(
            apiVersion="vrampack.dev/v1",
            kind="ExtenderConfiguration",
            unit_mib=1,
            listen=ListenSettings(verbs=f"{LOOPBACK}:0", health=""),
            deadlines=DeadlineSettings(ready_after_seconds=0),
            policy=PolicyTuning.model_validate(
                {
                    "default": policy.name,
                    "weights": dict(policy.weights),
                    "bounds": {"card_use_percent": policy.card_use_percent},
                }
            ),
        )
        api = Api(await load_credentials(write_kubeconfig(folder, self._api.url), None), user_agent="vrampack-simulate")
        self._stack.push_async_callback(api.close)
        listener = open_listener(*parse_address(settings.listen.verbs))
        self._extender = Extender(ExtenderOptions(settings, "simulated"), api, ExtenderMetrics("simulated"))
        self._serving = asyncio.create_task(self._extender.run({"verbs": listener}))
        client = ExtenderClient(
            SchedulerSettings(
                f"http://{LOOPBACK}:{listener.getsockname()[1]}{settings.listen.url_prefix}",
                weight=10,
                http_timeout_seconds=TIMEOUT_SECONDS,
                managed_resources=frozenset({well_known.MEMORY_RESOURCE}),
            )
        )
        self._client = await self._stack.enter_async_context(client)
        await self._wait_until_ready(nodes[0].name)

    async def _wait_until_ready(self, name: str) -> None:
        probe = build_pod_object("probe", SimulatedPod(None, HostResources(0, 0)))
        while not self._serving.done():
            try:
                await self._client.filter(probe, [name])
            except ExtenderError:
                await asyncio.sleep(POLL_SECONDS)  # there is no event to wait for
            else:
                return
        await self._serving

    async def _stop(self) -> None:
        self._extender.stop()
        await self._serving
        await self._stack.aclose()

    async def _place_pod(self, uid: str, pod: SimulatedPod) -> str | None:
        asked = pod.host or HostResources(0, 0)
        names = self._choice.list_feasible_nodes(asked, pod.units)
        if not names:
            return None
        created = self._api.create(build_pod_object(uid, pod))
        name = await self._choose_node(created, pod, names, asked)
        if name is None:
            self._api.delete("pods", uid, grace_seconds=0)
            return None
        self._choice.charge_host(name, asked, pod.units)
        return name

    async def _choose_node(
        self, created: Object, pod: SimulatedPod, names: Sequence[str], asked: HostResources
    ) -> str | None:
        if pod.cards is None:
            name = self._choice.choose_node(names, asked)
            metadata = created["metadata"]
            binding = {"metadata": {"name": metadata["name"], "uid": metadata["uid"]}, "target": {"name": name}}
            self._api.store.bind("default", metadata["name"], binding)
            return name
        passed = (await insist_on_answer(lambda: self._client.filter(created, names))).names
        if not passed:
            return None
        scores = await self._client.prioritize(created, passed) if len(passed) > 1 else {}
        name = self._choice.choose_node(passed, asked, scores)
        await insist_on_answer(lambda: self._client.bind(created, name))
        return name


async def insist_on_answer(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retry until the extender answers. Raises `ExtenderError` when it fails for too long.

    After a suspended run, or machine, the extender must hear from the API server before it answers again.
    """
    for failures in range(MAX_FAILURES):
        try:
            return await call()
        except ExtenderError as error:
            if not failures:
                log.warning("extender asked again error=%s", error)
            await asyncio.sleep(POLL_SECONDS)
    return await call()


def build_node_object(node: SimulatedNode) -> Object:
    """The node as its agent publishes it, with units of 1 MiB."""
    cards = [
        {
            "uuid": f"GPU-{node.name}-{index}",
            "index": index,
            "model": node.model,
            "memory_mib": units,
            "units": units,
            "healthy": True,
        }
        for index, units in enumerate(node.card_units)
    ]
    annotation = {"v": 1, "unit_mib": 1, "injection": "exact", "devices": "uuid", "cards": cards}
    host = node.host or HostResources(0, 0)
    amounts = {"cpu": f"{host.cpu_milli}m", "memory": f"{host.memory_mib}Mi", "pods": "1001"}
    amounts[well_known.MEMORY_RESOURCE] = str(sum(node.card_units))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "annotations": {well_known.NODE_CARDS: json.dumps(annotation)}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def build_pod_object(name: str, pod: SimulatedPod) -> Object:
    """The pod as admission leaves it, with an environment that refers to the annotation of its container."""
    host = pod.host or HostResources(0, 0)
    resources: Object = {"requests": {"cpu": f"{host.cpu_milli}m", "memory": f"{host.memory_mib}Mi"}}
    metadata: Object = {"name": name}
    container: Object = {"name": CONTAINER, "image": "registry.example.com/app:1", "resources": resources}
    if pod.cards is not None:
        amount = {well_known.MEMORY_RESOURCE: str(pod.units)}
        resources["requests"] |= amount
        resources["limits"] = amount
        container["env"] = [msgspec.to_builtins(build_admission_entry(CONTAINER))]
        if pod.cards.count > 1:
            metadata["labels"] = {well_known.COUNT_LABEL: str(pod.cards.count)}
        if pod.cards.models:
            metadata["annotations"] = {well_known.CARD_MODEL: ",".join(sorted(pod.cards.models))}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
