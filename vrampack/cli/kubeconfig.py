"""The kubeconfig a command uses when no flag names one."""

from __future__ import annotations

import os
from pathlib import Path


def find_kubeconfig(given: Path | None) -> Path | None:
    """Find the kubeconfig as kubectl does: the given one, `$KUBECONFIG`, ~/.kube/config. None: use this pod's account."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.exists() or "KUBERNETES_SERVICE_HOST" not in os.environ else None
