"""An extender without a scheduler, two nodes of one card of 15 units each, and a proxy before the API server that can fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.e2e.auditing import wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import count_pending_pods, post_bind, post_verb, read_ledger_states
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import LOOPBACK

Pod = dict[str, Any]  # Any: a pod as the API server holds it, asserted where it is read
NODES = ("gpu-0", "gpu-1")
BINDING = r"^/api/v1/namespaces/default/pods/[^/]+/binding$"
LIST = r"^/api/v1/(pods|nodes)\?limit="
AT_ONCE = {"gracePeriodSeconds": 0}


def read_cards_of(node: str) -> str:
    """The one card of a node of the bench."""
    return cards_annotation(published_card(0, uuid=f"GPU-of-{node}"))


@dataclass(frozen=True, slots=True)
class BindBench:
    """Everything a fault is tried on."""

    cluster: ControlPlane
    extender: ExtenderProgram
    api: FaultProxyThread

    def create_pod(self, name: str = "a", units: int = 4) -> Pod:
        """A new pod that the extender has seen."""
        before = count_pending_pods(self.extender)
        made: Pod = self.cluster.request_ok("POST", PODS, pod_manifest(name, units))
        self.cluster.wait_until(
            lambda: count_pending_pods(self.extender) == before + 1, what="the extender saw the pod"
        )
        return made

    def create_unseen_pod(self, name: str, units: int = 4) -> Pod:
        made: Pod = self.cluster.request_ok("POST", PODS, pod_manifest(name, units))
        return made

    def delete(self, name: str) -> None:
        self.cluster.request_ok("DELETE", f"{PODS}/{name}", AT_ONCE)

    def read_node_of(self, name: str = "a") -> str:
        """Where the API server shows the pod, empty while it is unbound."""
        return str(self.cluster.request_ok("GET", f"{PODS}/{name}")["spec"].get("nodeName", ""))

    def bind(self, pod: Pod, node: str = "gpu-0") -> str:
        return post_bind(self.extender, pod, node)

    def bound(self, name: str = "a", units: int = 4) -> Pod:
        """A pod on gpu-0 that the watch has confirmed."""
        made = self.create_pod(name, units)
        assert self.bind(made) == ""
        self.cluster.wait_until(
            lambda: read_ledger_states(self.extender).get(f"{name} on gpu-0/0") == f"bound, {units}"
        )
        return made

    def filter(self, pod: Pod) -> Pod:
        """Filter's answer for both nodes; it must come within a second, whatever has failed."""
        started = time.monotonic()
        said: Pod = post_verb(self.extender, "filter", {"Pod": pod, "NodeNames": list(NODES)})
        assert time.monotonic() - started < 1
        return said

    def recounted(self) -> None:
        """The ledger equals the API again."""
        wait_until_recounted(self.cluster, self.extender)


@contextmanager
def bind_bench(
    cluster: ControlPlane,
    start: Callable[..., ExtenderProgram],
    api: FaultProxyThread,
    **options: Any,  # noqa: ANN401 - passed on
) -> Iterator[BindBench]:
    """A bench whose extender is started with the options of `in_cluster.start_extender`."""
    for name in NODES:
        cluster.add_node(name, cards=read_cards_of(name))
    yield BindBench(cluster, start(api=(LOOPBACK, api.port), **options), api)
    api.clear()


def restore_apiserver(cluster: ControlPlane) -> None:
    """Start the API server that a test has ended, and wait until it serves as before.

    Until it has read its roles it refuses every account: that is not the shipped roles' fault.
    """
    cluster.start_apiserver()
    cluster.wait_until(cluster.admits_as_shipped, what="the admission policies are in force")
    cluster.refusals.drain()
