"""A binder over an embedded API server behind a failing proxy: only the test feeds the ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from extender.events import ExtenderEventRecorder
from extender.metrics import ExtenderMetrics
from extender.scheduling.binding import Binder
from extender.scheduling.named_places import NamedPlaces
from extender.scheduling.pod_generations import PodGenerations
from extender.settings import ExtenderConfiguration
from extender.state.group_fit import GroupFit
from extender.state.host_usage import HostUsage
from extender.state.ledger import Ledger
from extender.state.node_labels import NodeLabels
from extender.state.nominator import Nominator
from extender.state.pending_preemptions import PendingPreemptions
from extender.state.pod_client import PodClient
from extender.state.pod_groups import PodGroups
from extender.state.soft_reservations import SoftReservations
from extender.wire.codec import BindingArgs
from policies.engine.engine import Engine
from tests.fakes.proxy import FaultProxy
from tests.support.builders import UNIT_MIB
from tests.support.manifest_builders import (
    cards_annotation,
    pod_manifest,
    published_card,
    reference_env,
)
from tests.support.scripted_readiness import ScriptedReadiness
from vrampack.cards.pod import Pod
from vrampack.kube.aio_client import Configuration
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.objects import NodeObject, PodObject, to_node, to_pod
from vrampack.simulator.apiserver import ApiServer

BINDING = r"/binding$"
POD = r"/pods/[^/]+$"
STATUS = r"/status$"

Struct = TypeVar("Struct", PodObject, NodeObject)


class BindingHarness:
    """A binder over one node `n` of one card of 15 units, and a clock that tests set."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, api: Api, **settings: Any) -> None:  # noqa: ANN401 - fields of the configuration
        self.server = server
        self.proxy = proxy
        self.api = api
        self.seconds = 0.0
        self.metrics = ExtenderMetrics("test")
        configuration = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration", **settings)
        self.ledger = Ledger(unit_mib=UNIT_MIB, clock=lambda: self.seconds)
        nominator = Nominator(self.ledger, PendingPreemptions(self.ledger, clock=lambda: self.seconds))
        self.engine = Engine(nominator, configuration.policy)
        self.binder = Binder(
            ledger=self.ledger,
            nominator=nominator,
            pods=PodClient(
                self.ledger,
                api,
                resource="aliyun.com/gpu-mem",
                clock=lambda: self.seconds,
                started_ns=1_700_000_000_000_000_000,
                hosts=HostUsage(is_kept=False),
            ),
            engine=self.engine,
            places=NamedPlaces(
                self.ledger,
                SoftReservations(lambda: self.seconds, self.ledger.places.list_held_places_of),
                configuration,
                ScriptedReadiness(),
                GroupFit(self.ledger, PodGroups(), NodeLabels()),
                clock=lambda: self.seconds,
            ),
            api=api,
            events=ExtenderEventRecorder(api, self.metrics, clock=lambda: self.seconds, now=lambda: 0.0),
            metrics=self.metrics,
            settings=configuration,
            clock=lambda: self.seconds,
            now_ns=lambda: 1_700_000_000_000_000_000,
            generations=PodGenerations(self.engine),
        )
        self.add_node("n")

    def add_node(self, name: str, **published: object) -> None:
        node = {
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"vrampack.dev/cards": cards_annotation(published_card(0), **published)},
            },
        }
        made = self.server.create(node)
        parsed = decoded(made, NodeObject)
        resources = {"resource": "aliyun.com/gpu-mem", "count_resource": "aliyun.com/gpu-count"}
        self.ledger.update_node(to_node(parsed, unit_mib=UNIT_MIB, **resources).facts)

    def add_pod(self, name: str, units: int = 4, *, wired: bool = True) -> Pod:
        """A pod that the ledger has seen; `wired`: with the environment that admission adds."""
        body = pod_manifest(name, units) | {"kind": "Pod"}
        if wired:
            reference = reference_env("main")
            body["spec"]["containers"][0]["env"] = [reference]
        return self.hear(self.server.create(body))

    def hear(self, raw: dict[str, Any]) -> Pod:
        """The watch shows the pod as it is."""
        pod = to_pod(decoded(raw, PodObject))
        self.ledger.update_pod(pod)
        return pod

    def change_pod(self, name: str) -> dict[str, Any]:
        """Somebody changes the pod; the ledger has not seen it."""
        return self.server.patch("pods", name, {"metadata": {"labels": {"changed": "yes"}}})

    async def bind(self, pod: Pod, node: str = "n") -> str:
        return (await self.binder.bind(BindingArgs(pod.name, pod.namespace, pod.uid, node))).error

    def used(self, name: str = "n") -> int:
        node = self.ledger.get_node(name)
        assert node is not None
        return node.used_units


@asynccontextmanager
async def open_binding_harness(*, connections: int = 10, **settings: Any) -> AsyncIterator[BindingHarness]:  # noqa: ANN401 - fields of the configuration
    async with ApiServer() as server, FaultProxy(int(server.url.rpartition(":")[2])) as proxy:
        configuration = Configuration()
        configuration.host = proxy.url
        configuration.connection_pool_maxsize = connections
        api = Api(Credentials(configuration), observe=lambda **_: None)
        yield BindingHarness(server, proxy, api, **settings)
        await api.close()


def decoded(raw: dict[str, Any], kind: type[Struct]) -> Struct:
    """A raw API object as the reflector would read it."""
    return msgspec.json.decode(json.dumps(raw), type=kind)
