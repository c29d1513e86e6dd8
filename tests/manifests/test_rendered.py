"""What is committed as rendered is what the sources say, and no file lies in `manifests/` that nothing uses."""

from __future__ import annotations

import pytest

from tests.support.manifests import FILE, MANIFESTS, SHAPES, Json, load_rendered, load_shape, named_files

ON_THE_HOST = {
    MANIFESTS / "kubeadm" / "control-plane" / "scheduler.yaml",
    MANIFESTS / "kubeadm" / "control-plane" / "patches" / "kube-scheduler+json.yaml",
}
"""Copied to the control-plane hosts; the API server never sees them."""
NEEDED = {"ResourceQuota", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"}
LABEL = ("app.kubernetes.io/part-of", "vrampack")


def identity(item: Json) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


@pytest.mark.parametrize("name", SHAPES)
def test_the_rendered_file_is_what_the_sources_say(name: str) -> None:
    """`make render` after every change; the end-to-end tests compare byte by byte with what kubectl renders."""
    written = {identity(item): item for item in load_shape(name)}
    assert {identity(item): item for item in load_rendered(name)} == written
    assert len(load_rendered(name)) == len(written)


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_pod_needs_is_applied_before_it(name: str) -> None:
    """In kubectl's own order. Policies may come last: no scheduler of ours is up before they are in force."""
    kinds = [item["kind"] for item in load_rendered(name)]
    workloads = [place for place, kind in enumerate(kinds) if kind in {"Deployment", "DaemonSet"}]
    needed = [place for place, kind in enumerate(kinds) if kind in NEEDED]
    assert kinds[0] == "Namespace"
    assert set(kinds) >= NEEDED
    assert max(needed) < min(workloads)


def test_every_file_is_used() -> None:
    there = {path for path in MANIFESTS.rglob("*") if path.is_file()}
    used = {path for file in MANIFESTS.rglob(FILE) for path in named_files(file.parent)}
    assert there - used - ON_THE_HOST == {MANIFESTS / "rendered" / f"{name}.yaml" for name in SHAPES}


@pytest.mark.parametrize("name", SHAPES)
def test_one_label_finds_everything_that_was_installed(name: str) -> None:
    without = [identity(item) for item in load_shape(name) if item["metadata"]["labels"].get(LABEL[0]) != LABEL[1]]
    assert without == []
