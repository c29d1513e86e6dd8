"""What Helm makes of each set of values is right by kubeconform, with the schemas that an API server publishes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chart_sets import SETS, SHAPE
from tests.support.chart.helm import RELEASES, locate_helm
from tests.support.chart.kinds import list_definitions
from tests.support.chart.kubeconform import check_manifests, write_schemas
from tests.support.chart.rendering import APPLIED, NAMESPACE, parse_objects, run_helm, value_flags
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import split_documents

OTHERS_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
OTHERS = ("--set", "admission.webhook.certificate.source=cert-manager")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One that has the kinds of cert-manager and of the Prometheus operator, and nothing installed."""
    with ControlPlane.start(tmp_path_factory.mktemp("schemas")) as running:
        files = [option for path in list_definitions() for option in ("-f", path)]
        running.kubectl("apply", "--server-side", *files)
        running.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
        running.request_ok("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield running


@pytest.fixture(scope="module")
def schemas(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kubeconform") / "schemas"
    write_schemas(cluster, folder, kinds=OTHERS_KINDS)
    return folder


@pytest.mark.parametrize("release", RELEASES)
def test_each_value_set_passes_the_schemas(schemas: Path, release: str) -> None:
    """Documents that several sets have are looked at once."""
    rendered = (
        run_helm(locate_helm(release), "template", *value_flags([APPLIED, *names])) for names, _, _ in SETS.values()
    )
    documents = sorted({document for text in rendered for document in split_documents(text)})
    found = check_manifests(schemas, "---\n".join(documents))
    assert found["resources"] == []
    assert found["summary"] == {"valid": len(documents), "invalid": 0, "errors": 0, "skipped": 0}


def test_objects_of_foreign_kinds_pass_the_schemas(cluster: ControlPlane, schemas: Path) -> None:
    made = run_helm(locate_helm(), "template", *value_flags(["webhook-second-scheduler", "monitoring"]), *OTHERS)
    assert {item["kind"] for item in parse_objects(made)} >= OTHERS_KINDS
    assert check_manifests(schemas, made)["resources"] == []
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=made)


def test_the_schemas_find_faults(schemas: Path) -> None:
    """A field and a kind that do not exist."""
    made = run_helm(locate_helm(), "template", *value_flags([SHAPE]))
    for right, bad in (("replicas: 2", "replicsa: 2"), ("kind: NetworkPolicy", "kind: NetworkPolice")):
        assert right in made
        made = made.replace(right, bad)
    said = {(each["kind"], each["status"]) for each in check_manifests(schemas, made)["resources"]}
    assert said == {("Deployment", "statusInvalid"), ("NetworkPolice", "statusError")}
