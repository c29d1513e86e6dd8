"""What only kubectl and a real API server can say of `manifests/`; the rest is in `tests/manifests`."""

from __future__ import annotations

import pytest

from tests.e2e.render import RENDERED, render_manifests
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS, SHAPES

FOLDERS = ("second-scheduler", "examples", "admission", "admission/second-scheduler", "admission/optional")
"""Without the other shape, which wants another namespace than the one that is there; `test_kubeadm.py` applies it."""


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_committed_is_what_kubectl_renders(shape: str) -> None:
    """Byte by byte; `make render` writes it."""
    assert (RENDERED / f"{shape}.yaml").read_text() == render_manifests(MANIFESTS / shape)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_applies_without_a_warning(cluster: ControlPlane, folder: str) -> None:
    """Server side and strict: an unknown field is an error there, a deprecated one a warning."""
    cluster.kubectl("apply", "--warnings-as-errors", "--dry-run=server", "--validate=strict", "-k", MANIFESTS / folder)
