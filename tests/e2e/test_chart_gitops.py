"""The chart through the engine of Argo CD: it finds in sync what it has applied, and prunes no file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.chart_sets import SETS, SHAPE
from tests.support.chart.gitops import sync_twice
from tests.support.chart.helm import locate_helm
from tests.support.chart.kinds import list_definitions
from tests.support.chart.rendering import NAMESPACE, run_helm, value_flags
from tests.support.control_plane.cluster import ControlPlane

CERTIFICATE = "admission.webhook.certificate"
OURS = ("--set", f"{CERTIFICATE}.source=secret,{CERTIFICATE}.secretName=ours,{CERTIFICATE}.caBundle=")
"""A Job that goes away when it has ended is a difference, so the certificate is from elsewhere; who signed it follows."""
HOOK = ("mutatingwebhookconfiguration", "vrampack-environment")
SYNCED: dict[str, Sequence[str]] = {
    "second-scheduler": [SHAPE, "exact", "optional", "legacy-plugin", "account-reads", "kmod", "gpu-operator"],
    "kubeadm": ["kubeadm", "runtime-class"],
    "webhook-second-scheduler": ["webhook-second-scheduler", "gpu-operator-nri"],
}
"""Each shape with as many parts as go together, since the engine takes 8 s for one."""
LEFT_OUT = {"before-1.36", "webhook-kubeadm"}
"""They have no object that the others have not."""
AS_IT_WAS = ("unchanged", "configured", "PruneSkipped")
"""The second comes with every apply of a value that an API server writes differently: `1G` for its number."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Instead of the suite's own, which has the install already."""
    with ControlPlane.start(tmp_path_factory.mktemp("gitops")) as running:
        running.request_ok("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield running


def test_every_value_file_is_synced() -> None:
    assert {name for names, _, _ in SETS.values() for name in names} - set().union(*SYNCED.values()) == LEFT_OUT


@pytest.mark.parametrize("names", SYNCED.values(), ids=SYNCED)
def test_nothing_differs_after_a_first_or_a_second_sync(cluster: ControlPlane, names: Sequence[str]) -> None:
    """Starting from what another set has left."""
    first, second = sync_twice(cluster.admin_kubeconfig, NAMESPACE, render(cluster, names))
    assert len(first.messages) > 20
    assert (first.differs, second.differed, second.differs) == ([], [], [])
    assert [message for message in second.messages if not any(word in message for word in AS_IT_WAS)] == []


def test_leftovers_of_a_changed_setting_are_not_reported_as_differences(cluster: ControlPlane) -> None:
    """Pods of the old file need it until a rollout has succeeded; Argo CD does not know Helm's word for that."""
    sync_twice(cluster.admin_kubeconfig, NAMESPACE, render(cluster, [SHAPE]))
    made = render(cluster, [SHAPE], "--set", "rules.share_with=same-namespace,admission.exact=true")
    first, second = sync_twice(cluster.admin_kubeconfig, NAMESPACE, made)
    assert (first.differs, second.differed, second.differs) == ([], [], [])
    assert second.left != []
    for kind, name in (each.split("/") for each in second.left):
        left = json.loads(cluster.kubectl("get", "-n", NAMESPACE, kind, name, "-o", "json").stdout)
        assert kind == "ConfigMap"
        assert left["metadata"]["annotations"]["argocd.argoproj.io/compare-options"] == "IgnoreExtraneous"


def test_fields_written_by_cert_manager_are_not_reported_as_differences(cluster: ControlPlane) -> None:
    """Its kinds are installed, it does not run: who signed the certificate is written by hand."""
    cluster.kubectl("apply", "--server-side", *(option for path in list_definitions() for option in ("-f", path)))
    made = render(cluster, ["webhook-second-scheduler"], "--set", f"{CERTIFICATE}.source=cert-manager")
    sync_twice(cluster.admin_kubeconfig, NAMESPACE, made)
    signed = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": signed}]
    cluster.kubectl("patch", *HOOK, "--type=json", "-p", json.dumps(patch))
    first, second = sync_twice(cluster.admin_kubeconfig, NAMESPACE, made)
    assert (first.differed, first.differs, second.differed, second.differs) == ([], [], [], [])
    kept = json.loads(cluster.kubectl("get", *HOOK, "-o", "json").stdout)
    assert kept["webhooks"][0]["clientConfig"]["caBundle"] == signed
    # The engine prunes in the foreground, and the garbage collector takes half a minute to know a new kind.
    cluster.kubectl("delete", "-n", NAMESPACE, "certificates,issuers", "--all")


def render(cluster: ControlPlane, names: Sequence[str], *more: str) -> str:
    *flags, signed = OURS
    authority = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    return run_helm(locate_helm(), "template", *value_flags(names), *flags, signed + authority, *more)
