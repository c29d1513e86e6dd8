"""`python -m tests.e2e.first_builds`: what the suite needs of Go, built or fetched once and then found in the cache."""

from __future__ import annotations

from tests.support.chart.gitops import locate_gitops_sync
from tests.support.chart.helm import RELEASES, locate_helm
from tests.support.chart.kinds import list_definitions
from tests.support.chart.kubeconform import locate_kubeconform
from tests.support.control_plane.binaries import IDLE_EXTENDER, PROGRAMS, locate_programs


def build_programs() -> None:
    """Four minutes of two processors the first time. Raises `RuntimeError` without Go."""
    locate_programs(programs=(*PROGRAMS, IDLE_EXTENDER))
    for release in RELEASES:
        locate_helm(release)
    locate_kubeconform()
    locate_gitops_sync()
    list_definitions()


if __name__ == "__main__":
    build_programs()
