"""`vrampack demo --serve` with a real kubectl: what a newcomer types next works, and the cluster lives."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from tests.support.control_plane.binaries import locate_programs
from tests.support.demo_process import demo_kept_running
from tests.support.polling import wait_until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine", "labels": {"app": "mine"}},
    "spec": {
        "containers": [{"name": "c", "image": "example.com/a:1", "resources": {"limits": {"aliyun.com/gpu-mem": "3"}}}]
    },
}


class Kubectl(Protocol):
    def __call__(self, *arguments: str, stdin: object = None) -> str: ...


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """The real kubectl with the kubeconfig that the demo names; anything but success fails the test."""
    with demo_kept_running(folder=tmp_path) as document:

        def call(*arguments: str, stdin: object = None) -> str:
            done = subprocess.run(
                [locate_programs()["kubectl"], "--kubeconfig", document["kubeconfig"], *arguments],
                input=None if stdin is None else yaml.safe_dump(stdin),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={"HOME": str(tmp_path)},
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield call


def pods(kubectl: Kubectl) -> dict[str, tuple[str, str]]:
    """Node and phase by name."""
    items = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
    return {item["metadata"]["name"]: (item["spec"].get("nodeName", ""), item["status"]["phase"]) for item in items}


def test_kubectl_get_shows_nodes_and_pods_in_the_usual_columns(kubectl: Kubectl) -> None:
    lines = kubectl("get", "nodes,pods").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert lines[1].split()[:2] == ["node/cn-hangzhou.192.168.2.167", "Ready"]
    table = [line.split()[:3] for line in lines[3:] if line]
    assert table == [
        ["NAME", "READY", "STATUS"],
        ["pod/app-3g-v1-0", "1/1", "Running"],
        ["pod/app-3g-v1-1", "1/1", "Running"],
        ["pod/app-late", "0/1", "Pending"],
    ]


def test_kubectl_describe_shows_why_a_pod_waits(kubectl: Kubectl) -> None:
    told = kubectl("describe", "pod", "app-late")
    assert "FailedScheduling" in told
    assert "Insufficient aliyun.com/gpu-mem" in told


def test_apply_places_a_pod_and_delete_makes_room_for_the_one_that_waits(kubectl: Kubectl) -> None:
    """3 of the 7 units that are left; then the app goes, and 8 of 15 - 3 are there for the pod of 8."""
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/mine created\n"
    wait_until(lambda: pods(kubectl)["mine"] == ("cn-hangzhou.192.168.2.167", "Running"), what="mine runs")
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/mine unchanged\n"

    assert kubectl("delete", "statefulset", "app-3g-v1").startswith('statefulset.apps "app-3g-v1" deleted')
    wait_until(lambda: pods(kubectl).keys() == {"mine", "app-late"}, what="the app is gone")
    wait_until(lambda: pods(kubectl)["app-late"][1] == "Running", what="app-late runs")

    assert kubectl("delete", "pod", "mine", "app-late").startswith('pod "mine" deleted')
    assert pods(kubectl) == {}
