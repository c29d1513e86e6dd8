"""`vrampack ui` under the rights of a real API server: pods of namespaces that may not be listed are memory without names."""

from __future__ import annotations

import http.cookiejar
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import cards_annotation, pod_manifest, published_card
from tests.support.processes import REPOSITORY

Start = Callable[..., Any]
ROLES = "/apis/rbac.authorization.k8s.io/v1"
API_GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
def team(cluster: ControlPlane) -> Iterator[tuple[str, Path]]:
    """A namespace, and the kubeconfig of a user who may list its pods, all nodes, and nothing else."""
    namespace = cluster.namespace("team")
    subjects = [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}]
    metadata = {"name": namespace}
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    inside = f"{ROLES}/namespaces/{namespace}"
    cluster.request_ok("POST", f"{ROLES}/clusterroles", {"metadata": metadata, "rules": nodes})
    cluster.request_ok("POST", f"{inside}/roles", {"metadata": metadata, "rules": pods})
    for path, kind in ((f"{ROLES}/clusterrolebindings", "ClusterRole"), (f"{inside}/rolebindings", "Role")):
        role = {"apiGroup": API_GROUP, "kind": kind, "name": namespace}
        cluster.request_ok("POST", path, {"metadata": metadata, "roleRef": role, "subjects": subjects})
    yield namespace, cluster.kubeconfig(namespace, "default")
    for kind in ("clusterrolebindings", "clusterroles"):
        cluster.request_ok("DELETE", f"{ROLES}/{kind}/{namespace}")


@contextmanager
def open_ui(*arguments: str) -> Iterator[Callable[[str], str]]:
    """The command, and a reader of its pages that has its session."""
    command = [sys.executable, "-m", "vrampack.cli", "ui", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    try:
        url = (process.stdout.readline() if process.stdout else "").removeprefix("Open ").strip()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

        def read_page(path: str) -> str:
            with opener.open(url.partition("/open")[0] + path, timeout=60) as answer:
                return str(answer.read().decode())

        with opener.open(url, timeout=60):
            yield read_page
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_pods_of_other_namespaces_are_shown_as_memory_without_names(
    cluster: ControlPlane, extender: Start, scheduler: Start, team: tuple[str, Path]
) -> None:
    """On a card of 15 the team's pod holds 4 and another one 6: the team sees 4, and that others may hold up to 11."""
    namespace, kubeconfig = team
    cluster.add_node("gpu-1", cards=cards_annotation(published_card(0)))
    extender()
    scheduler()
    for where, name, units in ((namespace, "ours", 4), ("default", "unseen-0", 6)):
        path = f"/api/v1/namespaces/{where}/pods"
        cluster.request_ok("POST", path, pod_manifest(name, units))

        def is_bound(path: str = f"{path}/{name}") -> bool:
            return "nodeName" in cluster.request_ok("GET", path)["spec"]

        cluster.wait_until(is_bound, what=f"{name} bound")

    with open_ui("--kubeconfig", str(kubeconfig), "--namespace", namespace) as read_page:
        pages = [read_page(path) for path in ("/", "/nodes/gpu-1", "/pending")]
    assert f"{namespace}/ours" in pages[0]
    assert "0 to 11 GiB held elsewhere" in pages[0]
    assert [page for page in pages if "unseen-0" in page] == []
    with open_ui("--kubeconfig", str(cluster.admin_kubeconfig)) as read_page:
        assert "10 GiB of 15 GiB held" in read_page("/")
