"""The whole recommended install, pods and all, as a user applies it. No kubelet runs here, so they stay pending."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from tests.e2e.render import render_manifests
from tests.support.admission.policies import EXACT
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import WORKLOADS, ControlPlane, Json
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.manifests import MANIFESTS, find_pod_template, find_workload, load_rendered
from tests.support.processes import ManagedProcess

SHAPE = MANIFESTS / "second-scheduler"
DOCS = MANIFESTS.parent / "docs"
QUOTAS = {"vrampack-scheduler": "vrampack-critical-pods", "vrampack-agent": "vrampack-critical-agents"}
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/vrampack-scheduler"


@pytest.fixture
def installed(cluster: ControlPlane) -> Iterator[ControlPlane]:
    cluster.kubectl("apply", "--warnings-as-errors", "-k", SHAPE)
    yield cluster
    for item in load_rendered("second-scheduler"):
        if item["kind"] in WORKLOADS:
            name = item["metadata"]["name"]
            cluster.kubectl("delete", "--ignore-not-found", "-n", NAMESPACE, item["kind"], name)


def test_both_replicas_are_admitted_and_left_as_they_are(installed: ControlPlane) -> None:
    """By the namespace's profile, the quota for critical pods, and our own policies."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pods = installed.wait_until(
        lambda: _exactly(2, installed.request_ok("GET", path)["items"]), what="two pods are made"
    )

    template = installed.request_ok("GET", DEPLOYMENT)["spec"]["template"]["spec"]
    for pod in pods or ():
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["priority"] == 2_000_000_000
        for kind in ("initContainers", "containers"):
            assert [made.get("env") for made in pod["spec"][kind]] == [made.get("env") for made in template[kind]]


def test_a_second_apply_changes_nothing(installed: ControlPlane) -> None:
    """Kubectl reports `configured` for some kinds even then; the generation shows whether anything changed."""

    def generations() -> dict[tuple[str, str], int]:
        found = json.loads(installed.kubectl("get", "-k", SHAPE, "-o", "json").stdout)["items"]
        return {(made["kind"], made["metadata"]["name"]): made["metadata"].get("generation", 0) for made in found}

    before = generations()
    installed.kubectl("apply", "--warnings-as-errors", "-k", SHAPE)
    assert len(before) == len(load_rendered("second-scheduler"))
    assert generations() == before


@pytest.mark.parametrize(("workload_name", "quota"), QUOTAS.items(), ids=QUOTAS)
def test_the_shipped_quota_admits_our_critical_pods(cluster: ControlPlane, workload_name: str, quota: str) -> None:
    """The API server of this suite limits them, as some managed ones do."""
    made = find_pod_template(find_workload("second-scheduler", workload_name))
    pod = {"metadata": {"name": "replica"}, "spec": made["spec"]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    assert cluster.request("POST", path, pod)[0] == HTTPStatus.CREATED
    try:
        cluster.kubectl("delete", "-n", NAMESPACE, "resourcequota", quota)
        refused = cluster.wait_until(lambda: _refused(cluster.request("POST", path, pod)), what="the quota is gone")
    finally:
        cluster.install_manifests()
    assert "insufficient quota to match these scopes" in str(refused)
    cluster.wait_until(
        lambda: cluster.request("POST", path, pod)[0] == HTTPStatus.CREATED, what="the quota counts again"
    )


def test_documented_check_command_reports_that_pods_are_wired(cluster: ControlPlane) -> None:
    """The very command of docs/install.md."""
    text = (DOCS / "install.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^kubectl (run probe .*)$", text, re.MULTILINE)
    said = cluster.kubectl(*shlex.split(command)).stdout.split()
    (wanted,) = re.findall(r"It says `([^`]*)` and three more", text)
    assert said[:5] == wanted.split()
    assert len(said) == 8


def test_uninstall_leaves_nothing_behind_and_deletes_no_workload_pod(cluster: ControlPlane) -> None:
    """A namespace takes time to go; its objects may be gone before kubectl asks."""
    cluster.request_ok("POST", PODS, pod_manifest("asks", 4))
    try:
        for folder in (EXACT, SHAPE):
            cluster.kubectl("delete", "--ignore-not-found", "-k", folder)
        kinds = {item["kind"].lower() for item in load_rendered("second-scheduler")}
        left = cluster.kubectl("get", ",".join(sorted(kinds)), "-A", "-l", "app.kubernetes.io/part-of=vrampack")
        cluster.wait_until(lambda: not _is_wired(cluster), what="new pods are left alone")
    finally:
        cluster.wait_until(lambda: not _find_namespace(cluster), 60, what=lambda: f"gone: {_find_namespace(cluster)}")
        cluster.install_manifests()
    assert left.stdout == ""
    assert cluster.request_ok("GET", f"{PODS}/asks")["spec"]["schedulerName"] == "vrampack"


def test_two_schedulers_are_ready_although_one_leads(
    cluster: ControlPlane, scheduler: Callable[..., ManagedProcess]
) -> None:
    """Ready means that its caches are filled: a rollout and a disruption budget count the one that waits."""
    for _ in range(2):
        scheduler()

    def holder() -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vrampack-scheduler"
        _, lease = cluster.request("GET", path)
        return str(lease.get("spec", {}).get("holderIdentity", ""))

    assert cluster.wait_until(holder, what="one of them leads")


def test_a_user_overlay_sets_registry_and_settings(tmp_path: Path) -> None:
    """The one of docs/install.md."""
    (tmp_path / "extender.yaml").write_text(
        "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nreserve_mib: 450\n"
    )
    made = _overlay(
        tmp_path,
        {
            "resources": [SHAPE],
            "components": [
                *(MANIFESTS / "admission" / name for name in ("legacy-plugin", "optional")),
                MANIFESTS / "agent" / "kmod",
            ],
            "images": [
                {"name": "ghcr.io/vrampack/vrampack", "newName": "registry.example.com/vrampack", "newTag": "1"}
            ],
            "configMapGenerator": [
                {
                    "name": "vrampack-extender-config",
                    "namespace": NAMESPACE,
                    "behavior": "replace",
                    "files": ["extender.yaml"],
                }
            ],
        },
    )
    pod = made["Deployment", "vrampack-scheduler"]["spec"]["template"]["spec"]
    mounted = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
    assert pod["initContainers"][0]["image"] == "registry.example.com/vrampack:1"
    assert "reserve_mib: 450" in made["ConfigMap", mounted["extender"]]["data"]["extender.yaml"]
    assert ("ValidatingAdmissionPolicy", "vrampack-visible-devices") in made
    variables = made["ValidatingAdmissionPolicy", "vrampack-records"]["spec"]["variables"]
    plugin = "'system:serviceaccount:kube-system:gpushare-device-plugin'"
    assert {"name": "legacyPlugin", "expression": plugin} in variables
    (agent,) = made["DaemonSet", "vrampack-agent"]["spec"]["template"]["spec"]["containers"]
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        "appArmorProfile": {"type": "Unconfined"},
    }


def test_api_server_accepts_the_agent_for_the_kernel_module(cluster: ControlPlane, tmp_path: Path) -> None:
    """One refuses CAP_SYS_ADMIN beside `allowPrivilegeEscalation: false` when it is spelled with its prefix."""
    _overlay(tmp_path, {"resources": [SHAPE], "components": [MANIFESTS / "agent" / "kmod"]})
    cluster.kubectl("apply", "--warnings-as-errors", "--dry-run=server", "--validate=strict", "-k", tmp_path)


def _find_namespace(cluster: ControlPlane) -> Json:
    """Our namespace with what keeps it, or nothing once it is gone."""
    status, found = cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}")
    return {} if status == HTTPStatus.NOT_FOUND else found


def _is_wired(cluster: ControlPlane) -> bool:
    """Whether admission still does something to a pod that asks."""
    made = cluster.request_ok("POST", f"{PODS}?dryRun=All", pod_manifest("later", 4, scheduler="default-scheduler"))
    return made["spec"]["schedulerName"] == "vrampack" or "env" in made["spec"]["containers"][0]


def _refused(answer: tuple[int, Json]) -> str:
    status, said = answer
    return "" if status == HTTPStatus.CREATED else str(said["message"])


def _overlay(folder: Path, wanted: dict[str, list[Json]]) -> dict[tuple[str, str], Json]:
    """What a kustomization makes; kubectl wants paths relative to it."""
    for kind in ("resources", "components"):
        wanted[kind] = [os.path.relpath(path, folder) for path in wanted[kind]]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(render_manifests(folder))}


def _exactly(count: int, found: list[Json]) -> list[Json] | None:
    return found if len(found) == count else None
