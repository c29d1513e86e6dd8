"""`python -m tests.support.recipe_programs NAME..`: builds and installs what the recipes' tests run, before they run.

It takes minutes the first time, which is more than a test has, and the node's namespaces have no network.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.coscheduling.scheduler import build_scheduler
from tests.support.jupyterhub.programs import install_programs
from tests.support.karpenter.autoscaler import build_karpenter
from tests.support.kueue.manager import build_manager

ARGO_CD = "github.com/argoproj/argo-cd/v3@v3.5.7"
"""For its definition of an Application; the last release that Go 1.26 takes."""
DOWNLOAD_SECONDS = 300

PROGRAMS: Mapping[str, Callable[[], Path]] = {
    "kueue": build_manager,
    "coscheduling": build_scheduler,
    "karpenter": build_karpenter,
    "jupyterhub": lambda: install_programs().folder,
    "argo-cd": lambda: download_module(ARGO_CD),
}


def download_module(name: str) -> Path:
    """Where the Go client keeps this module at this version; it asks the network once. Raises `CalledProcessError`."""
    answer = subprocess.run(
        ["go", "mod", "download", "-json", name],
        cwd=tempfile.gettempdir(),  # inside a module of ours it would become a requirement of it
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(f"{name}\t{PROGRAMS[name]()}\n")
