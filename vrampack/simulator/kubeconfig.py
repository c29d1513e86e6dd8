"""A kubeconfig for an embedded API server, for kubectl and every other client."""

from __future__ import annotations

import json
from pathlib import Path

ENTRY_NAME = "vrampack-embedded"


def write_kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig in `folder` for the server at `url`, which has no login."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": ENTRY_NAME,
        "contexts": [
            {"name": ENTRY_NAME, "context": {"cluster": ENTRY_NAME, "user": ENTRY_NAME, "namespace": "default"}}
        ],
        "clusters": [{"name": ENTRY_NAME, "cluster": {"server": url}}],
        "users": [{"name": ENTRY_NAME, "user": {}}],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path
