"""The shape for API servers from 1.30 to 1.35, on one of them or on the oldest that ours can emulate. Nothing there changes a pod.

Nor does anything here for `exact` nodes: this is also where `vrampack-void-guard` stands alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import yaml

from tests.e2e.render import render_manifests
from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.pods import (
    VOID,
    admission_container,
    admission_pod,
    container_of,
    env_by_annotation,
    env_entry,
)
from tests.support.control_plane.binaries import choose_older_version
from tests.support.control_plane.cluster import WORKLOADS, ControlPlane
from tests.support.manifests import MANIFESTS

pytestmark = pytest.mark.smoke
SHAPE = MANIFESTS / "before-1.36"
EVERY_CARD = env_entry("NVIDIA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own: older, and with this shape."""
    with ControlPlane.start(tmp_path_factory.mktemp("before"), emulated_version=choose_older_version()) as running:
        items = [item for item in yaml.safe_load_all(render_manifests(SHAPE)) if item["kind"] not in WORKLOADS]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        running.kubectl("apply", "--warnings-as-errors", "-f", "-", input=whole)
        yield running


@pytest.fixture
def bench(cluster: ControlPlane) -> Iterator[AdmissionBench]:
    naming = admission_pod(admission_container(units=4, env=[EVERY_CARD]), schedulerName="vrampack")
    with open_admission_bench(cluster) as made:

        def refuses() -> bool:
            statuses = {made.post_pod(pod)[0] for pod in (admission_pod(), naming)}
            return statuses == {HTTPStatus.UNPROCESSABLE_ENTITY}

        made.cluster.wait_until(refuses, what="the policies are in force")
        yield made


@pytest.mark.parametrize("shape", ["before-1.36", "kubeadm"])
def test_api_server_accepts_the_whole_shape(cluster: ControlPlane, shape: str) -> None:
    """No kind in it is newer than the server. In a dry run the namespace stays the one that is there."""
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", MANIFESTS / shape)


def test_a_pod_that_names_our_scheduler_is_stored_as_it_is(bench: AdmissionBench) -> None:
    made = bench.read_pod(bench.create_pod(admission_pod(schedulerName="vrampack")))
    assert made["spec"]["schedulerName"] == "vrampack"
    assert "env" not in container_of(made, "main")


def test_examples_name_our_scheduler_and_are_accepted(bench: AdmissionBench) -> None:
    made = list(yaml.safe_load_all(render_manifests(MANIFESTS / "before-1.36" / "examples")))
    assert [item["spec"]["template"]["spec"]["schedulerName"] for item in made] == ["vrampack", "vrampack"]
    for item in made:
        bench.create_pod({"metadata": {"generateName": "example-"}, "spec": item["spec"]["template"]["spec"]})


def test_refusal_of_a_pod_without_our_scheduler_names_the_scheduler(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(admission_pod())
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.schedulerName: 'default-scheduler' does not know GPU memory; use one of: vrampack" in answer["message"]
    assert "from Kubernetes 1.36 on, and with the webhook, it may be left out" in answer["message"]


def test_gpu_memory_pod_may_not_name_cards_itself(bench: AdmissionBench) -> None:
    """The refusal names container, field and fix; the node would set `void` too."""
    pod = admission_pod(admission_container(units=4), admission_container("plain", env=[EVERY_CARD]))
    pod["spec"]["schedulerName"] = "vrampack"
    status, answer = bench.post_pod(pod)
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "container 'plain': env NVIDIA_VISIBLE_DEVICES may only say void" in answer["message"]
    assert "leave the variable out" in answer["message"]

    for entry in (*VOID, env_by_annotation("NVIDIA_VISIBLE_DEVICES", "visible-devices.vrampack.dev/main")):
        bench.create_pod(admission_pod(admission_container(units=4, env=[entry]), schedulerName="vrampack"))
    bench.create_pod(admission_pod(admission_container(env=[EVERY_CARD])))  # it asks for nothing


def test_ephemeral_container_of_a_gpu_memory_pod_may_not_name_cards(bench: AdmissionBench) -> None:
    name = bench.create_pod(admission_pod(schedulerName="vrampack"))
    status, answer = bench.add_debug_container(name, admission_container("debugger", env=[EVERY_CARD]))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.ephemeralContainers: env NVIDIA_VISIBLE_DEVICES may only say void" in answer["message"]
    for entries in ([], VOID):
        debugger = admission_container(f"debugger-{len(entries)}", env=entries)
        status, answer = bench.add_debug_container(name, debugger)
        assert status == HTTPStatus.OK, answer
