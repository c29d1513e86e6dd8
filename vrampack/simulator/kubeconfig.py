"""The way to an embedded API server, as kubectl and every other client read it."""

from __future__ import annotations

import json
from pathlib import Path

NAME = "vrampack-embedded"


def write_kubeconfig(folder: Path, url: str) -> Path:
    """A kubeconfig in `folder` for the server at `url`; there is no login."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": {}}],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path
