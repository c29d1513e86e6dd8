"""The recipe's inference service on a real control plane, under a demand that the test sets.

with run_service(folder, programs) as service:
    service.servers.set_demand(330)
    service.wait_for_replicas(7)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.e2e import in_cluster
from tests.e2e.auditing import audit_cluster
from tests.e2e.recipes.hpa.cluster_network import ClusterNetwork
from tests.e2e.recipes.hpa.fast_time import HPA_FLAGS, hasten
from tests.e2e.recipes.hpa.inference_servers import InferenceServers
from tests.e2e.recipes.hpa.programs import PROMETHEUS_OPERATOR, ScalingPrograms, locate_upstream
from tests.e2e.recipes.hpa.scraping import run_prometheus
from tests.e2e.recipes.hpa.scripted_kubelet import ScriptedKubelet
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import cards_annotation, published_card, read_allocation_record
from tests.support.manifests import load_documents
from tests.support.processes import LOOPBACK, REPOSITORY

Json: TypeAlias = Any
"""An object of the API server."""

RECIPE = REPOSITORY / "docs" / "recipes" / "hpa"
T4_MIB, T4_UNITS = 15109, 14
WITHIN_SECONDS = 90
"""Steps take up to 44 s of it: a window of 20 s, three steps down of 4 s, and Prometheus takes up targets every 5 s."""
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@dataclass(frozen=True, slots=True)
class ScaledService:
    """What runs, and what tests read of it."""

    cluster: ControlPlane
    network: ClusterNetwork
    programs: ScalingPrograms
    servers: InferenceServers
    kubelet: ScriptedKubelet

    def wait_for_replicas(self, count: int) -> Sequence[Json]:
        """The pods, as soon as exactly this many run."""
        self.cluster.wait_until(
            lambda: len(self.kubelet.running_pods) == count,
            WITHIN_SECONDS,
            what=lambda: f"{count} replicas; {self.describe_scaling()}",
        )
        return list(self.kubelet.running_pods.values())

    def read_autoscaler(self, name: str) -> Json:
        return self.cluster.request_ok("GET", f"{HPAS}/{name}")

    def describe_scaling(self) -> str:
        """For the message of a test that waited in vain."""
        autoscalers = self.cluster.kubectl("describe", "horizontalpodautoscalers", check=False).stdout
        return f"running: {sorted(self.kubelet.running_pods)}\n{autoscalers}"

    def apply_recipe(self, name: str) -> None:
        """Apply a file as it stands, and then once more with its times shortened."""
        self.cluster.kubectl("apply", "--warnings-as-errors", "-f", RECIPE / name)
        (item,) = load_documents(RECIPE / name)
        path = f"{item['apiVersion']}/namespaces/default/{item['kind'].lower()}s/{item['metadata']['name']}"
        self.cluster.request_ok(
            "PATCH", f"/apis/{path}", {"spec": hasten(item["spec"])}, content_type="application/merge-patch+json"
        )


@contextmanager
def run_service(folder: Path, programs: ScalingPrograms) -> Iterator[ScaledService]:
    """One replica runs, without an autoscaler. At the end the auditor finds nothing."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane.start(folder, controller_flags=HPA_FLAGS))
        cluster.install_manifests()
        for node in ("gpu-0", "gpu-1"):
            cluster.add_node(node, cards=_publish_cards(node))
        for program in (in_cluster.start_extender(cluster).process, in_cluster.start_scheduler(cluster)):
            stack.callback(program.kill)
        cluster.request_ok("POST", "/api/v1/namespaces", {"metadata": {"name": "monitoring"}})
        _make_bound_claim(cluster)
        kubelet = stack.enter_context(ScriptedKubelet(cluster))
        servers = stack.enter_context(InferenceServers(kubelet.list_running))
        stack.enter_context(run_prometheus(folder, programs.prometheus, RECIPE / "podmonitor.yaml", kubelet, servers))
        network = ClusterNetwork(cluster)
        network.add_name("prometheus-operated", "monitoring", LOOPBACK)
        _define_pod_monitors(cluster)
        for name in ("inference.yaml", "podmonitor.yaml"):
            cluster.kubectl("apply", "--warnings-as-errors", "-f", RECIPE / name)
        service = ScaledService(cluster, network, programs, servers, kubelet)
        service.wait_for_replicas(1)
        yield service
        refused, broken = cluster.refusals.drain(), audit_cluster(cluster, transcript=folder / "none")
        assert not refused, f"the API server refused our account: {refused}"
        assert not broken, f"the auditor reports:\n{broken}"


def list_cards(pods: Sequence[Json]) -> set[tuple[str, str]]:
    """On which cards of which nodes they are, as their records say."""
    return {(pod["spec"]["nodeName"], card["uuid"]) for pod in pods for card in read_allocation_record(pod)["cards"]}


def list_limits(pods: Sequence[Json]) -> list[int]:
    """MiB of each pod's one container."""
    return [share["mib"] for pod in pods for share in read_allocation_record(pod)["containers"]["triton"]]


def _publish_cards(node: str) -> str:
    """Two cards of the kind in the scenario."""
    return cards_annotation(
        *(
            published_card(index, units=T4_UNITS, memory_mib=T4_MIB, uuid=f"GPU-{node}-{index}", model="Tesla T4")
            for index in range(2)
        )
    )


def _define_pod_monitors(cluster: ControlPlane) -> None:
    """As Prometheus Operator does; the operator itself is not there."""
    definition = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"
    cluster.kubectl("apply", "--server-side", "-f", locate_upstream(PROMETHEUS_OPERATOR) / definition)
    cluster.kubectl("wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com")


def _make_bound_claim(cluster: ControlPlane) -> None:
    """The claim of the models; no controller of volumes runs here, so it is made as one would leave it."""
    claim = {
        "metadata": {"name": "models", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": "models",
        },
    }
    volume = {
        "metadata": {"name": "models"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "models"},
            "hostPath": {"path": "/srv/models"},
        },
    }
    cluster.request_ok("POST", "/api/v1/persistentvolumes", volume)
    cluster.request_ok("POST", CLAIMS, claim)
