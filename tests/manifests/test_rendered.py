"""The committed files are what `make render` makes of the current chart, the folders hold the same objects, and each file is used."""

from __future__ import annotations

import pytest

from tests.support.chart.rendering import SUMS, compute_sums
from tests.support.manifests import FILE, MANIFESTS, SHAPES, Json, load_rendered, load_shape, named_files

ON_THE_HOST = {
    MANIFESTS / "kubeadm" / "control-plane" / "scheduler.yaml",
    MANIFESTS / "kubeadm" / "control-plane" / "patches" / "kube-scheduler+json.yaml",
}
"""Copied to the control-plane hosts; the API server never sees them."""
NEEDED = {"ResourceQuota", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"}
LABEL = ("app.kubernetes.io/part-of", "vrampack")
STAYS = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false",
    "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
}
"""Kustomize removes no ConfigMap, so those of the folders need no annotation that keeps them."""


def identity(item: Json) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def test_committed_files_are_up_to_date_with_the_chart() -> None:
    """`make render` after every change of the chart. The end-to-end tests run it with helm itself."""
    assert SUMS.read_text() == compute_sums()


@pytest.mark.parametrize("name", SHAPES)
def test_helm_and_kustomize_make_the_same_objects(name: str) -> None:
    """Including ConfigMaps, which get the same names with hashes."""
    rendered = load_rendered(name)
    for item in rendered:
        if item["kind"] == "ConfigMap":
            assert item["metadata"].pop("annotations") == STAYS
    written = {identity(item): item for item in load_shape(name)}
    assert {identity(item): item for item in rendered} == written
    assert len(rendered) == len(written)


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_pod_needs_is_applied_before_it(name: str) -> None:
    """In Helm's own order. Policies may come last: no scheduler of ours is up before they are in force."""
    kinds = [item["kind"] for item in load_rendered(name)]
    workloads = [place for place, kind in enumerate(kinds) if kind in {"Deployment", "DaemonSet"}]
    needed = [place for place, kind in enumerate(kinds) if kind in NEEDED]
    assert kinds[0] == "Namespace"
    assert set(kinds) >= NEEDED
    assert max(needed) < min(workloads)


def test_every_manifest_file_is_used() -> None:
    there = {path for path in MANIFESTS.rglob("*") if path.is_file()}
    used = {path for file in MANIFESTS.rglob(FILE) for path in named_files(file.parent)}
    assert there - used - ON_THE_HOST == {SUMS, *(SUMS.parent / f"{name}.yaml" for name in SHAPES)}


@pytest.mark.parametrize("name", SHAPES)
def test_one_label_finds_everything_that_was_installed(name: str) -> None:
    without = [identity(item) for item in load_shape(name) if item["metadata"]["labels"].get(LABEL[0]) != LABEL[1]]
    assert without == []
