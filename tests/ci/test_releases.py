"""The releases of Kubernetes that the smoke tests run on: chosen by one variable, and the same everywhere they are named."""

from __future__ import annotations

import re

import pytest

from tests.support.control_plane.binaries import (
    MODULE,
    RELEASE_VARIABLE,
    choose_older_version,
    read_pinned_version,
)
from tests.support.processes import REPOSITORY


def read_matrix() -> list[str]:
    """What `make smoke` runs."""
    (targets,) = re.findall(r"^smoke: ((?:smoke-[\d.]+ )+)##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    return [target.removeprefix("smoke-") for target in str(targets).split()]


def test_every_release_of_the_matrix_is_pinned_and_no_other() -> None:
    versions = {release: read_pinned_version({RELEASE_VARIABLE: release}) for release in read_matrix()}
    assert {release: version.rpartition(".")[0] for release, version in versions.items()} == {
        release: f"v{release}" for release in versions
    }
    assert {path.stem for path in (MODULE / "releases").glob("*.mod")} == set(versions) - {"1.36"}
    assert read_pinned_version({}) == versions["1.36"]


def test_all_modules_of_a_release_are_of_one_version() -> None:
    """v1.N.P goes with v0.N.P; a forgotten line would build a mixture."""
    for release in read_matrix()[:-1]:
        text = (MODULE / "releases" / f"{release}.mod").read_text()
        replaced = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ v0(\S+)$", text, re.MULTILINE))
        assert replaced == {read_pinned_version({RELEASE_VARIABLE: release}).removeprefix("v1")}


def test_all_releases_but_the_newest_are_tested_before_a_release() -> None:
    """The newest is in `make e2e`."""
    assert re.findall(r'"smoke-([\d.]+)"', (REPOSITORY / ".ci/suites.py").read_text()) == read_matrix()[:-1]


def test_only_a_new_api_server_emulates_an_older_version() -> None:
    assert choose_older_version({RELEASE_VARIABLE: "1.35"}) is None
    assert choose_older_version({}) == "1.33"


def test_a_release_that_is_not_pinned_is_an_error() -> None:
    with pytest.raises(
        RuntimeError, match=r"VRAMPACK_KUBERNETES=1\.20: releases beside that of go\.mod are 1\.34, 1\.35"
    ):
        read_pinned_version({RELEASE_VARIABLE: "1.20"})
