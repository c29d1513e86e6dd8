"""`kubectl inspect cgpu` under the real kubectl and API server, as a user who may list nodes and pods and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.in_cluster import ExtenderProgram
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import REPOSITORY, ManagedProcess
from vrampack.cli import kubectl_plugin
from vrampack.cli.inspect import kubectl_reader

NODE = "cn-hangzhou.192.168.2.167"
GOLDEN = REPOSITORY / "tests" / "cli" / "inspect" / "golden"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = "gpu-inspector"
MERGE = "application/merge-patch+json"


@pytest.fixture
def inspector(cluster: ControlPlane) -> Iterator[Path]:
    """A kubeconfig whose account has the role that docs/cli.md asks for."""
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
    account = {"kind": "ServiceAccount", "namespace": "default", "name": ROLE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
    made = {"metadata": {"name": ROLE}}
    cluster.request_ok("POST", "/api/v1/namespaces/default/serviceaccounts", made)
    cluster.request_ok("POST", f"{RBAC}/clusterroles", made | {"rules": rules})
    cluster.request_ok("POST", f"{RBAC}/clusterrolebindings", made | {"roleRef": role, "subjects": [account]})
    yield cluster.kubeconfig("default", ROLE)
    cluster.request_ok("DELETE", f"{RBAC}/clusterrolebindings/{ROLE}")
    cluster.request_ok("DELETE", f"{RBAC}/clusterroles/{ROLE}")
    cluster.request_ok("DELETE", f"/api/v1/namespaces/default/serviceaccounts/{ROLE}")


@pytest.fixture
def inspect(cluster: ControlPlane, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `kubectl inspect cgpu` with the built plugin on PATH."""
    kubectl_plugin.build_plugin(tmp_path / "bin" / "kubectl-inspect-cgpu")
    folders = (tmp_path / "bin", cluster.binaries["kubectl"].parent, Path(sys.executable).parent)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [cluster.binaries["kubectl"], "inspect", "cgpu", *arguments],
            env={"PATH": ":".join([*map(str, folders), "/usr/bin", "/bin"]), "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def a_node_with_an_address(cluster: ControlPlane) -> None:
    cluster.add_node(NODE, cards=cards_annotation(published_card(0)))
    address = {"addresses": [{"type": "InternalIP", "address": "192.168.2.167"}]}
    cluster.request_ok("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": address}, content_type=MERGE)


def test_the_founding_scenario_is_shown_while_no_extender_runs(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    inspector: Path,
    inspect: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Bound by the real scheduler and the extender; shown after both are gone, to the byte, by both commands."""
    a_node_with_an_address(cluster)
    before = inspect("--kubeconfig", inspector)
    assert (before.returncode, before.stdout, before.stderr) == (0, golden("recorded-empty.summary"), "")
    service, scheduling = extender(), scheduler()
    for at in (0, 1):
        cluster.request_ok("POST", PODS, pod_manifest(f"app-3g-v1-{at}", 4))
    cluster.wait_until(lambda: len(bound_pods(cluster)) == 2, what="both pods bound")
    scheduling.stop()
    service.process.stop()
    for form, flags in (("summary", ()), ("details", ("-d",))):
        done = inspect(*flags, f"--kubeconfig={inspector}")
        assert (done.returncode, done.stdout, done.stderr) == (0, golden(f"recorded.{form}"), "")
        ours = vrampack_inspect(*flags, "--kubeconfig", str(inspector))
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, done.stdout, "")
    (node,) = json.loads(inspect("--kubeconfig", inspector, "-o", "json", NODE).stdout)["nodes"]
    (card,) = node["devs"]
    assert (card["model"], card["memoryMiB"], card["usedGPU"]) == ("Tesla V100-SXM2-16GB", 16130, 8)
    assert [pod["state"] for pod in card["pods"]] == ["bound", "bound"]


def test_missing_right_of_the_user_is_named(
    cluster: ControlPlane, inspect: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """As itself, and as an account that the administrator impersonates: kubectl's flags choose who asks. It has no pods to see, either."""
    somebody = "system:serviceaccount:default:default"
    for flags in (
        ["--kubeconfig", cluster.kubeconfig("default", "default")],
        ["--kubeconfig", cluster.admin_kubeconfig, "--as", somebody],
    ):
        done = inspect(*flags)
        assert (done.returncode, done.stdout) == (1, "")
        *theirs, ours = done.stderr.splitlines()
        for line, kind in zip(theirs, ("nodes", "pods"), strict=True):
            assert line.startswith(f'Error from server (Forbidden): {kind} is forbidden: User "{somebody}" cannot list')
        assert ours.startswith("kubectl inspect cgpu: the right to list nodes in the whole cluster is missing")


def test_an_unreachable_server_exits_1(inspect: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = inspect("--server", "http://127.0.0.1:9", "--request-timeout=5s")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "kubectl inspect cgpu: kubectl could not list nodes"


def test_paging_and_selectors_of_the_real_server_lose_no_pod(
    cluster: ControlPlane, inspector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven pods on the node come in pages of two; one that has finished and one that waits are not sent."""
    a_node_with_an_address(cluster)
    for at in range(8):
        cluster.request_ok("POST", PODS, a_plain_pod(f"p{at}", node=NODE))
    cluster.request_ok("POST", PODS, a_plain_pod("waiting", node=None))
    finished = {"status": {"phase": "Succeeded"}}
    cluster.request_ok("PATCH", f"{PODS}/p3/status", finished, content_type=MERGE)
    monkeypatch.setattr(kubectl_reader, "PAGE_SIZE", 2)
    monkeypatch.setenv("HOME", str(cluster.directory))
    reader = kubectl_reader.KubectlReader([f"--kubeconfig={inspector}"], str(cluster.binaries["kubectl"]))
    pages = [json.loads(page)["items"] for page in reader.read_pages("pods")]
    names = [pod["metadata"]["name"] for page in pages for pod in page]
    assert sorted(names) == ["p0", "p1", "p2", "p4", "p5", "p6", "p7"]
    assert [len(page) for page in pages] == [2, 2, 2, 1]


def a_plain_pod(name: str, *, node: str | None) -> dict[str, Any]:
    """A pod that asks for no units and names no scheduler that runs, so only the test moves it."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.com/web:1"}]}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def bound_pods(cluster: ControlPlane) -> list[dict[str, Any]]:
    return [pod for pod in cluster.request_ok("GET", PODS)["items"] if "nodeName" in pod["spec"]]


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


def vrampack_inspect(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vrampack.cli", "inspect", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
