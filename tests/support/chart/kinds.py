"""Kinds of cert-manager and of the Prometheus operator, as their releases define them: from their Go modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.chart.helm import MODULES

OF_MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com"
DEFINITIONS: Mapping[str, Sequence[str]] = {
    "github.com/cert-manager/cert-manager": ["deploy/crds/cert-manager.io_*.yaml"],
    "github.com/prometheus-operator/prometheus-operator": [
        f"{OF_MONITORING}_*monitors.yaml",
        f"{OF_MONITORING}_prometheusrules.yaml",
    ],
}
"""Where they are in each module."""
DOWNLOAD_TIMEOUT_SECONDS = 300


def list_definitions(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The files, from the Go client's own cache. Raises `RuntimeError` without Go."""
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise RuntimeError("go is not on PATH, and kinds of others are read out of Go modules")
    return sorted(
        path
        for module, patterns in DEFINITIONS.items()
        for pattern in patterns
        for path in _locate_module(go, module, environ).glob(pattern)
    )


def _locate_module(go: str, module: str, environ: Mapping[str, str]) -> Path:
    answer = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=MODULES / "kinds",
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])
