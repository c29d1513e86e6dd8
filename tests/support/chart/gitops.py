"""The engine of Argo CD, with a small program of ours, built from its Go module as helm is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.chart.helm import MODULES
from tests.support.go_module import GoModule

TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class GitopsRound:
    """The result of one round of comparing and applying."""

    differed: list[str]
    """Objects that differed before the round."""
    messages: list[str]
    differs: list[str]
    """Objects that differed after the round, each with both texts."""
    left: list[str]
    """Objects of earlier rounds that are no longer wanted, and stay."""


def locate_gitops_sync(environ: Mapping[str, str] = os.environ) -> Path:
    """The program; built where it is not yet. Raises `RuntimeError` without Go."""
    module = GoModule(MODULES / "gitops", "helm", "./cmd")
    return module.build_programs(environ, "gitops-sync") / "gitops-sync"


def sync_twice(kubeconfig: Path, namespace: str, manifests: str) -> list[GitopsRound]:
    """Both rounds. Raises `RuntimeError` with what the engine says."""
    done = subprocess.run(
        [locate_gitops_sync(), kubeconfig, namespace],
        input=manifests,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return [
        GitopsRound(**{name: found or [] for name, found in json.loads(line).items()})
        for line in done.stdout.splitlines()
    ]
