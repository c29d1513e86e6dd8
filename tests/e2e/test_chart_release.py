"""A release of the chart on a real API server, by Helm 3 and by Helm 4: installed, changed, taken back, removed.

No kubelet runs here: pod templates and generations of workloads show whether a container would be restarted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.chart.helm import ADOPTS, RELEASES, change_release, locate_helm
from tests.support.chart.rendering import NAMESPACE, value_flags
from tests.support.chart.values import CHART
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.manifests import MANIFESTS, load_rendered

SHAPE = ["second-scheduler", "exact"]
RULE = ("--set", "rules.share_with=same-namespace")
WORKLOADS = (("deployment", "vrampack-scheduler"), ("daemonset", "vrampack-agent"))
MINE = ("-l", "app.kubernetes.io/part-of=vrampack")


@dataclass(frozen=True, slots=True)
class ChartRelease:
    """The release `vrampack` of one cluster."""

    cluster: ControlPlane
    by: str
    """One of `RELEASES`."""
    home: Path

    def change(self, command: str, *arguments: str | Path) -> None:
        """`upgrade`, `rollback` and so on, with their flags. Raises `RuntimeError` with what Helm says."""
        kubeconfig = self.cluster.admin_kubeconfig
        change_release(locate_helm(self.by), kubeconfig, self.home, command, *arguments, "--namespace", NAMESPACE)

    def set_up(self, *arguments: str | Path) -> None:
        """Install it, or upgrade what is there, with the values of `SHAPE`."""
        self.change("upgrade", CHART, "--install", *value_flags(SHAPE), *arguments)

    def take_away(self) -> None:
        """The release, if there is one, and the files that an uninstall leaves."""
        self.change("uninstall", "--ignore-not-found")
        self.cluster.kubectl("delete", "-n", NAMESPACE, "configmaps", *MINE)

    def read_revision(self) -> str:
        """The number of the newest revision, which `rollback` takes."""
        secrets = self.cluster.kubectl("get", "-n", NAMESPACE, "secrets", "-l", "owner=helm", "-o", "json").stdout
        return str(max(int(item["metadata"]["labels"]["version"]) for item in json.loads(secrets)["items"]))

    def read_workload(self, kind: str, name: str) -> Json:
        return json.loads(self.cluster.kubectl("get", "-n", NAMESPACE, kind, name, "-o", "json").stdout)

    def list_config_maps(self) -> dict[str, Json]:
        listed = self.cluster.kubectl("get", "-n", NAMESPACE, "configmaps", *MINE, "-o", "json").stdout
        return {item["metadata"]["name"]: item["data"] for item in json.loads(listed)["items"]}

    def generations(self) -> list[int]:
        """The generation of each workload; as long as it stays the same, no pod is replaced."""
        return [self.read_workload(*each)["metadata"]["generation"] for each in WORKLOADS]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own, which has the install already."""
    with ControlPlane.start(tmp_path_factory.mktemp("release")) as running:
        yield running


@pytest.fixture(scope="module", params=RELEASES)
def release(
    request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChartRelease]:
    """One for all tests of this Helm: each brings it to the values of `SHAPE` first, or takes it away."""
    label = {"pod-security.kubernetes.io/enforce": "privileged"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": label}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    made = ChartRelease(cluster, request.param, tmp_path_factory.mktemp("home"))
    yield made
    made.take_away()


def test_unchanged_and_refused_values_change_nothing(release: ChartRelease) -> None:
    release.set_up()
    before, files = release.generations(), release.list_config_maps()
    release.set_up()
    with pytest.raises(RuntimeError, match="share_wiht"):
        release.set_up("--set", "rules.share_wiht=same-namespace")
    assert release.generations() == before
    assert release.list_config_maps() == files


def test_changed_setting_replaces_pods_and_a_rollback_finds_the_old_file(release: ChartRelease) -> None:
    release.set_up()
    original = release.read_revision()
    first, files = release.read_workload("deployment", "vrampack-scheduler"), release.list_config_maps()
    _, agents = release.generations()

    release.set_up(*RULE)
    second = release.read_workload("deployment", "vrampack-scheduler")
    (added,) = release.list_config_maps().keys() - files.keys()
    assert files.items() <= release.list_config_maps().items()
    assert "share_with: same-namespace" in release.list_config_maps()[added]["extender.yaml"]
    assert added in json.dumps(second["spec"]["template"])
    assert release.generations()[1] == agents

    release.change("rollback", original)
    third = release.read_workload("deployment", "vrampack-scheduler")
    assert third["spec"]["template"] == first["spec"]["template"]
    assert files.items() <= release.list_config_maps().items()


@pytest.mark.parametrize("release", ["helm-4"], indirect=True)
def test_a_release_of_helm_3_is_upgraded_by_helm_4(release: ChartRelease) -> None:
    release.take_away()
    replace(release, by="helm-3").set_up()
    before, files = release.generations(), release.list_config_maps()
    replace(release, by="helm-4").set_up()
    assert release.generations() == before
    assert release.list_config_maps() == files


def test_uninstall_keeps_the_files_and_deletes_no_workload_pod(release: ChartRelease) -> None:
    release.set_up()
    release.cluster.request_ok("POST", PODS, pod_manifest("asks", 4))
    release.change("uninstall")
    kinds = sorted({item["kind"].lower() for item in load_rendered("second-scheduler")} - {"configmap", "namespace"})
    assert release.cluster.kubectl("get", ",".join(kinds), "-A", *MINE, "--ignore-not-found").stdout == ""
    assert release.cluster.request_ok("GET", f"{PODS}/asks")["spec"]["schedulerName"] == "vrampack"
    assert release.list_config_maps() != {}


def test_an_install_by_kubectl_is_adopted_and_no_pod_is_replaced(release: ChartRelease) -> None:
    """Helm's annotations on a Deployment change its generation and replace no pod."""
    release.take_away()
    for folder in ("second-scheduler", "admission/exact"):
        release.cluster.kubectl("apply", "-k", MANIFESTS / folder)
    before, files = [release.read_workload(*each)["spec"] for each in WORKLOADS], release.list_config_maps()
    release.set_up(*ADOPTS[release.by])
    assert [release.read_workload(*each)["spec"] for each in WORKLOADS] == before
    assert release.list_config_maps() == files
