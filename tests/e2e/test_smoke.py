"""The main job on the release that `VRAMPACK_KUBERNETES` names: install, share a card, wait, wake, preempt, protect, look.

Before 1.36 the install is `manifests/before-1.36`. Pods name their scheduler and nodes hand cards over by CDI, which is the same on
every release. What else is a test of releases has the mark `smoke`, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.activations import wait_until_refused
from tests.e2e.pod_placements import list_places, run_pods, wait_until_bound
from tests.e2e.release_shape import HAS_MUTATING_POLICIES, SHAPE, start_release
from tests.support.control_plane.binaries import read_minor_version
from tests.support.control_plane.cluster import ControlPlane
from tests.support.control_plane.cluster_reset import PRIORITIES
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import REPOSITORY

pytestmark = pytest.mark.smoke
Start = Callable[..., Any]
SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own."""
    with start_release(tmp_path_factory.mktemp("smoke")) as running:
        yield running


@pytest.fixture
def started(cluster: ControlPlane, extender: Start, scheduler: Start) -> ControlPlane:
    """One node of one card of 15 units, extender and scheduler."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), injection="cdi"))
    extender()
    scheduler()
    return cluster


def test_api_server_is_of_the_release_and_accepts_the_whole_shape(cluster: ControlPlane) -> None:
    major, minor = read_minor_version()
    assert cluster.request_ok("GET", "/version")["gitVersion"].startswith(f"v{major}.{minor}.")
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", SHAPE)


def test_two_pods_share_a_card_and_a_third_waits_until_there_is_room(started: ControlPlane) -> None:
    first, second = run_pods(started, pod_manifest("a", 8), pod_manifest("b", 7))
    assert list_places([first, second]) == [("gpu-0", [0]), ("gpu-0", [0])]
    started.request_ok("POST", PODS, pod_manifest("late", 6))
    wait_until_refused(started, "late")
    started.request_ok("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0})
    assert list_places([wait_until_bound(started, "late")]) == [("gpu-0", [0])]


def test_a_pod_of_higher_priority_gets_its_card(started: ControlPlane) -> None:
    started.add_priority_class("urgent", 1000)
    try:
        run_pods(started, pod_manifest("a", 15))
        urgent = pod_manifest("urgent", 15)
        urgent["spec"]["priorityClassName"] = "urgent"
        (made,) = run_pods(started, urgent)
    finally:
        started.request_ok("DELETE", f"{PRIORITIES}/urgent")
    assert list_places([made]) == [("gpu-0", [0])]


def test_missing_scheduler_name_is_filled_in_or_refused(cluster: ControlPlane) -> None:
    pod = pod_manifest("asks", 4)
    del pod["spec"]["schedulerName"]
    status, answer = cluster.request("POST", f"{PODS}?dryRun=All", pod)
    if HAS_MUTATING_POLICIES:
        assert (status, answer["spec"]["schedulerName"]) == (HTTPStatus.CREATED, "vrampack")
    else:
        assert status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "use one of: vrampack" in answer["message"]


def test_explain_and_drain_show_why_a_pod_waits_and_what_must_move(started: ControlPlane) -> None:
    run_pods(started, pod_manifest("a", 8))
    started.request_ok("POST", PODS, pod_manifest("late", 9))
    wait_until_refused(started, "late")
    assert "no card with enough free memory" in _run_vrampack(started, "explain", "pod", "late")
    assert "8/15" in _run_vrampack(started, "inspect")
    drain = json.loads(_run_vrampack(started, "card", "drain", "gpu-0", "0", "-o", "json"))
    assert [(pod["name"], pod["units"], pod["target"]) for pod in drain["pods"]] == [("a", 8, "")]
    assert drain["pods"][0]["step"] == "make room first: its replacement would wait"
    assert "cordoned" in _run_vrampack(started, "card", "list", "gpu-0")


def test_support_bundle_is_complete_and_has_no_secret(started: ControlPlane, tmp_path: Path) -> None:
    """The accounts are allowed what they must be, by the API server's own authorizer."""
    secret = {"metadata": {"name": "token"}, "stringData": {"token": SECRET}}
    started.request_ok("POST", "/api/v1/namespaces/vrampack-system/secrets", secret)
    run_pods(started, _plant_secrets(pod_manifest("a", 8)))
    started.request_ok("POST", PODS, _plant_secrets(pod_manifest("late", 9)))
    wait_until_refused(started, "late")
    archive = tmp_path / "bundle.tar.gz"
    _run_vrampack(started, "support-bundle", "--output", str(archive))
    with tarfile.open(archive) as opened:
        files = {each.name: content.read() for each in opened if (content := opened.extractfile(each)) is not None}
    rows = [json.loads(line) for line in files["vrampack-support/access.jsonl"].splitlines()]
    assert rows
    assert [row for row in rows if not row["allowed"]] == []
    manifest = json.loads(files["vrampack-support/manifest.json"])
    assert [part["problem"] for part in manifest["parts"] if part["problem"]] == []
    assert b"vrampack-records" in files["vrampack-support/admission.jsonl"]
    assert "vrampack-support/explain/default.late.txt" in files
    planted = (SECRET.encode(), started.admin_token.encode())
    assert [name for name, content in files.items() if any(each in content for each in planted)] == []


def _plant_secrets(pod: dict[str, Any]) -> dict[str, Any]:
    """In the environment, the arguments, an annotation and a label of its owner's."""
    pod["metadata"] |= {"annotations": {"example.com/login": SECRET}, "labels": {"example.com/key": SECRET}}
    pod["spec"]["containers"][0] |= {"env": [{"name": "HF_TOKEN", "value": SECRET}], "args": [f"--token={SECRET}"]}
    return pod


def _run_vrampack(cluster: ControlPlane, *arguments: str) -> str:
    command = [sys.executable, "-m", "vrampack.cli", *arguments, "--kubeconfig", str(cluster.admin_kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
