"""Helm, two releases of it, built of Go modules by exact tag and cached outside the tree as the control plane is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.go_module import GoModule

MODULES = Path(__file__).parents[2] / "e2e" / "helm"
RELEASES = ("helm-3", "helm-4")
"""The folders below `MODULES`. The first is the one that `make render` runs."""
ADOPTS: Mapping[str, Sequence[str]] = {
    "helm-3": ["--take-ownership"],
    "helm-4": ["--take-ownership", "--force-conflicts"],
}
"""Flags to adopt objects of kubectl. Helm 4 applies on the server, where kubectl would otherwise still own the fields."""
RELEASE_TIMEOUT_SECONDS = 120
KUBERNETES = ("1", "36")
"""The version that `helm template` takes the cluster for, as in its own builds; without it a very old one."""


def locate_helm(release: str = RELEASES[0], environ: Mapping[str, str] = os.environ) -> Path:
    """Helm of this release; built where it is not yet. Raises `RuntimeError` without Go."""
    major = release.rpartition("-")[2]
    parts = ("Major", "Minor")
    flags = [
        f"-X helm.sh/helm/v{major}/{package}.k8sVersion{part}={value}"
        for package in ("pkg/chartutil", "pkg/lint/rules")
        for part, value in zip(parts, KUBERNETES, strict=True)
    ]
    module = GoModule(MODULES / release, "helm", f"helm.sh/helm/v{major}/cmd", " ".join(flags))
    return module.build_programs(environ, "helm") / "helm"


def change_release(helm: Path, kubeconfig: Path, home: Path, command: str, *arguments: str | Path) -> None:
    """`upgrade`, `rollback` and so on, of the release `vrampack`. Raises `RuntimeError` with what Helm says."""
    done = subprocess.run(
        [helm, command, "vrampack", *arguments],
        capture_output=True,
        text=True,
        timeout=RELEASE_TIMEOUT_SECONDS,
        check=False,
        env={"HOME": str(home), "KUBECONFIG": str(kubeconfig)},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
