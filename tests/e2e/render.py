"""Renders `manifests/` as a user's kubectl does: `python -m tests.e2e.render` writes what is committed in `manifests/rendered`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.control_plane import binaries
from tests.support.manifests import MANIFESTS, SHAPES

RENDERED = MANIFESTS / "rendered"


def render_manifests(folder: Path) -> str:
    """What `kubectl apply -k` would send, as text."""
    kubectl = binaries.locate_programs()["kubectl"]
    return subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60, check=True, env={}
    ).stdout


def main() -> None:
    for shape in SHAPES:
        (RENDERED / f"{shape}.yaml").write_text(render_manifests(MANIFESTS / shape))


if __name__ == "__main__":
    main()
