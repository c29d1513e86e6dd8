"""The pages of docs/recipes that install nothing: what they show is valid, and does what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.recipes.definitions import establish_definition
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS
from tests.support.processes import REPOSITORY
from tests.support.recipe_programs import ARGO_CD, download_module

PAGES = REPOSITORY / "docs" / "recipes"
DEFINITION = Path("manifests") / "crds" / "application-crd.yaml"
A_KUSTOMIZATION = re.compile(r"^   ```yaml\n(   resources:.*?)^   ```", re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r"^\s+(?:- )?image: (\S+)$", re.MULTILINE)
OWN_REGISTRY = "registry.example.com/"


@pytest.fixture
def argo_cd(cluster: ControlPlane) -> Iterator[None]:
    """Argo CD's own definition of an Application."""
    definition = download_module(ARGO_CD) / DEFINITION
    establish_definition(cluster, definition)
    yield
    cluster.kubectl("delete", "-f", definition)


@pytest.mark.usefixtures("argo_cd")
def test_application_example_is_valid_for_argo_cd(cluster: ControlPlane) -> None:
    cluster.request_ok("POST", "/api/v1/namespaces", {"metadata": {"name": "argocd"}})
    cluster.kubectl("apply", "--validate=strict", "-f", PAGES / "argo-cd" / "application.yaml")


def test_a_kustomization_for_an_offline_cluster_names_one_registry(cluster: ControlPlane, tmp_path: Path) -> None:
    (shown,) = A_KUSTOMIZATION.findall((PAGES / "air-gapped.md").read_text())
    kustomization = yaml.safe_load(shown)
    manifests = os.path.relpath(MANIFESTS.resolve(), tmp_path.resolve())
    kustomization["resources"] = [
        each.replace("../vrampack/manifests", manifests) for each in kustomization["resources"]
    ]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    images = IMAGE.findall(cluster.kubectl("kustomize", tmp_path).stdout)
    assert len(images) >= 3  # extender, scheduler, agent
    assert [image for image in images if not image.startswith(OWN_REGISTRY)] == []
