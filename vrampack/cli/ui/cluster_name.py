"""The name of the cluster on a page: a reader with several kubeconfigs must see which cluster this is."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from vrampack.kube.credentials import Credentials


def name_cluster(kubeconfig: Path | None, context: str | None, credentials: Credentials) -> str:
    """The context, and the API server's host and port; without a kubeconfig only the latter."""
    address = urlsplit(credentials.configuration.host).netloc.rpartition("@")[2]
    chosen = context or ("" if kubeconfig is None else read_current_context(kubeconfig))
    return f"{chosen} ({address})" if chosen else address


def read_current_context(kubeconfig: Path) -> str:
    """The current context: of several files that of the first that names one, as in kubectl; empty if none does."""
    for part in str(kubeconfig).split(os.pathsep):
        file = Path(part).expanduser()
        loaded = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
        if isinstance(loaded, dict) and loaded.get("current-context"):
            return str(loaded["current-context"])
    return ""
