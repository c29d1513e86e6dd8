"""What a recipe installs is there for the tests that name it, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.control_plane.cluster import ControlPlane
from tests.support.kueue import manager
from tests.support.processes import ManagedProcess


@pytest.fixture
def kueue(cluster: ControlPlane) -> Iterator[ManagedProcess]:
    """Kueue as its recipe installs it, without queues."""
    site = manager.KueueSite(
        cluster.directory / "kueue",
        cluster.kubectl,
        lambda: cluster.kubeconfig(manager.NAMESPACE, manager.ACCOUNT),
    )
    with manager.run_manager(site) as process:
        yield process
