"""The manifest by which krew installs the plugin: `kubectl krew install --manifest=inspect-cgpu.yaml --archive=...`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

DOWNLOADS = "https://github.com/vrampack/vrampack/releases/download"


def write_krew_manifest(target: Path, archive: Path, version: str) -> None:
    """One platform for every system with Python: the plugin is a program in Python."""
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "inspect-cgpu"},
        "spec": {
            "version": f"v{version}",
            "homepage": "https://github.com/vrampack/vrampack",
            "shortDescription": "Show which pod holds how much of which GPU card",
            "description": "Lists the cards of each node, what is free on them and, with -d, which pod holds what.\n"
            "It reads nodes and pods with your own kubeconfig, through kubectl.\n",
            "caveats": "It needs Python 3.11 or newer. Installed by krew it is `kubectl inspect-cgpu`.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": f"{DOWNLOADS}/v{version}/{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": "kubectl-inspect_cgpu",
                    "files": [{"from": name, "to": "."} for name in ("kubectl-inspect_cgpu", "LICENSE")],
                }
            ],
        },
    }
    target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
