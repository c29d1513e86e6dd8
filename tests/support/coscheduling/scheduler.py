"""Builds that scheduler, finds the definition of its groups, and adds the plugin to a scheduler's configuration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.go_module import GoModule

MODULE = Path(__file__).parent / "module"
PATH_OF_MODULE = "sigs.k8s.io/scheduler-plugins"
PLUGIN = "Coscheduling"


def build_scheduler(environ: Mapping[str, str] = os.environ) -> Path:
    """The program, built once."""
    return GoModule(MODULE, "coscheduling", "./cmd").build_programs(environ, "kube-scheduler") / "kube-scheduler"


def locate_definition(environ: Mapping[str, str] = os.environ) -> Path:
    """The definition of PodGroup, in Go's own cache. Raises `RuntimeError` without Go."""
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise RuntimeError(f"go is not on PATH, and the definition comes with the Go module {PATH_OF_MODULE}")
    command = [go, "mod", "download", "-json", PATH_OF_MODULE]
    answer = subprocess.run(command, cwd=MODULE, env=dict(environ), capture_output=True, text=True, check=True)
    return Path(json.loads(answer.stdout)["Dir"]) / "manifests" / "coscheduling" / "crd.yaml"


def add_plugin(configuration: str) -> str:
    """The configuration with the plugin in every profile, as upstream's example has it: it also sorts the queue."""
    loaded: dict[str, Any] = yaml.safe_load(configuration)
    for profile in loaded["profiles"]:
        points = profile.setdefault("plugins", {})
        points.setdefault("multiPoint", {}).setdefault("enabled", []).append({"name": PLUGIN})
        points["queueSort"] = {"enabled": [{"name": PLUGIN}], "disabled": [{"name": "*"}]}
    return yaml.safe_dump(loaded)
