"""What Helm itself makes of charts/vrampack: what is committed, what kustomize makes, and what an API server takes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.e2e.chart_sets import SETS
from tests.e2e.render import render_manifests
from tests.support.chart.helm import RELEASES, locate_helm
from tests.support.chart.rendering import (
    APPLIED,
    NAMESPACE,
    parse_objects,
    render_files,
    run_helm,
    template_with,
    value_flags,
)
from tests.support.chart.values import CHART
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS, Json
from vrampack.cli.version import VERSION


@pytest.fixture(scope="module", params=RELEASES)
def helm(request: pytest.FixtureRequest) -> Path:
    return locate_helm(request.param)


def test_the_committed_manifests_equal_the_rendered_chart(helm: Path) -> None:
    """Comments and all; `make render` writes it."""
    made = render_files(template_with(helm))
    assert len(made) > 30
    assert {path: path.read_text() for path in made} == made


def test_every_value_file_passes_helm_lint(helm: Path) -> None:
    for names, _, _ in SETS.values():
        flags = value_flags([APPLIED, *names])
        done = subprocess.run(
            [helm, "lint", "--strict", CHART, "--namespace", NAMESPACE, *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("names", "resource", "component"), SETS.values(), ids=SETS)
def test_value_file_renders_the_same_as_the_folder_of_its_name(
    tmp_path: Path, names: Sequence[str], resource: str, component: str
) -> None:
    """Components patch by hand what the chart's templates write: the result is the same."""
    parts = {"resources": resource} | ({"components": component} if component else {})
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({kind: [os.path.relpath(MANIFESTS / path, tmp_path)] for kind, path in parts.items()})
    )
    kustomized = parse_objects(render_manifests(tmp_path))
    assert _by_identity(parse_objects(template_with(locate_helm())([APPLIED, *names]))) == _by_identity(kustomized)


@pytest.mark.parametrize(("names", "resource", "component"), SETS.values(), ids=SETS)
def test_an_api_server_accepts_the_rendered_chart(
    cluster: ControlPlane, names: Sequence[str], resource: str, component: str
) -> None:
    """Strictly, with every field known to it: no schema kept offline knows as much."""
    del resource, component
    cluster.check_manifests(template_with(locate_helm())([APPLIED, *names]))


def test_every_object_has_the_labels_of_its_release(helm: Path) -> None:
    """And no pod: a new version of the chart alone replaces none."""
    flags = [*value_flags(["webhook-second-scheduler", "monitoring"]), "--set=admission.webhook.certificate.source=job"]
    made = parse_objects(run_helm(helm, "template", *flags))
    wanted = {
        "app.kubernetes.io/part-of": "vrampack",
        "app.kubernetes.io/instance": "vrampack",
        "app.kubernetes.io/version": VERSION,
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": f"vrampack-{VERSION}",
    }
    assert len(made) > 60
    assert [item["metadata"]["name"] for item in made if not wanted.items() <= item["metadata"]["labels"].items()] == []
    pods = [item["spec"]["template"] for item in made if item["kind"] in {"Deployment", "DaemonSet"}]
    assert [pod for pod in pods if wanted.keys() & pod["metadata"]["labels"].keys()] == []


def test_release_in_another_namespace_refers_to_that_namespace_throughout(helm: Path) -> None:
    """Accounts that policies name, the lease and the certificate too; but for one right that is read in kube-system."""
    shape = value_flags([APPLIED, "webhook-second-scheduler", "optional"])
    made = parse_objects(run_helm(helm, "template", *shape, "--namespace", "gpu"))
    assert [item["metadata"]["name"] for item in made if NAMESPACE in str(item)] == []
    assert {item["metadata"].get("namespace", "gpu") for item in made} == {"gpu", "kube-system"}


def _by_identity(items: Sequence[Json]) -> dict[tuple[str, str], Json]:
    for item in items:
        if item["kind"] == "ConfigMap":
            item["metadata"].pop("annotations", None)  # helm's alone: it stays when a release no longer has it
    return {(item["kind"], item["metadata"]["name"]): item for item in items}
