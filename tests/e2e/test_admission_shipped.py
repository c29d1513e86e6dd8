"""The manifests themselves: apply twice, check, come and go, and never stand in the way of the rest of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.e2e.second_scheduler import without_second_scheduler
from tests.support.admission.pods import admission_container, admission_pod, env_entry
from tests.support.admission.policies import (
    EXACT,
    OPTIONAL,
    SECOND_SCHEDULER,
    SHIPPED,
    apply_policies,
    delete_policies,
    load_policies,
)
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifests import load_objects

KUBEADM = SHIPPED / "kubeadm"
FOLDERS = (SHIPPED, EXACT, SECOND_SCHEDULER, OPTIONAL, KUBEADM)
GROUP = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def everything(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """What ships off by default, or for the other shape, is applied as well, and gone afterwards."""
    try:
        for folder in (OPTIONAL, KUBEADM):
            apply_policies(cluster, folder)
        yield cluster
    finally:
        for folder in (OPTIONAL, KUBEADM):
            delete_policies(cluster, folder)
        cluster.wait_until(
            lambda: _creates(cluster, admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES")])))
        )


def test_default_folder_omits_optional_policies() -> None:
    """What depends on the shape, the nodes or the user is in a folder of its own. None of these changes a pod."""
    assert set(load_policies(SHIPPED)) == {
        "vrampack-agent",
        "vrampack-agent-events",
        "vrampack-agent-lease",
        "vrampack-annotation-guard",
        "vrampack-cdi-guard",
        "vrampack-extender-nodes",
        "vrampack-records",
        "vrampack-requests",
        "vrampack-runtime-guard",
        "vrampack-void-guard",
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_policy_fails_closed_and_is_bound_once(folder: Path) -> None:
    bound = [made["spec"].get("policyName") for made in load_objects(folder)]
    for name, policy in load_policies(folder).items():
        assert policy["spec"]["failurePolicy"] == "Fail", name
        assert bound.count(name) == 1, name


def test_the_type_checker_of_the_control_plane_has_no_warning(everything: ControlPlane) -> None:
    """It writes what it finds into the status of every validating policy."""
    for name, policy in {name: policy for folder in FOLDERS for name, policy in load_policies(folder).items()}.items():
        if policy["kind"] != "ValidatingAdmissionPolicy":
            continue
        path = f"{GROUP}/validatingadmissionpolicies/{name}"

        def checked(path: str = path) -> Json:
            found = everything.request_ok("GET", path)
            status = found.get("status", {})
            return status if status.get("observedGeneration") == found["metadata"]["generation"] else None

        status = everything.wait_until(checked, what=f"{name} is checked")
        assert status.get("typeChecking", {}).get("expressionWarnings", []) == [], name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_policy_takes_parameters(folder: Path) -> None:
    """A missing ConfigMap stops every matching request of the cluster before any match condition is evaluated."""
    assert [name for name, policy in load_policies(folder).items() if "paramKind" in policy["spec"]] == []


def test_policies_work_again_after_removal_and_reapplication(cluster: ControlPlane) -> None:
    """An uninstall and a second install leave nothing behind in the API server."""
    elsewhere = admission_pod(schedulerName="someone-else")
    for _ in range(2):
        assert not _creates(cluster, elsewhere)
        with without_second_scheduler(cluster):
            assert _creates(cluster, elsewhere)
    assert not _creates(cluster, elsewhere)


def _creates(cluster: ControlPlane, pod: Json) -> bool:
    return cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)[0] == HTTPStatus.CREATED
