"""Renders a folder of `manifests/` as a user's kubectl does."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.control_plane import binaries


def render_manifests(folder: Path) -> str:
    """What `kubectl apply -k` would send, as text."""
    kubectl = binaries.locate_programs()["kubectl"]
    return subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60, check=True, env={}
    ).stdout
