"""Builds Prometheus and prometheus-adapter, at the versions that their modules name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_module import GoModule

MODULES = Path(__file__).parent / "modules"
PROMETHEUS = Path(__file__).parents[3] / "alerts" / "programs" / "prometheus"
ADAPTER = "sigs.k8s.io/prometheus-adapter"
TAGS = "-tags=remove_all_sd"
"""As in the alerts suite, which builds the same Prometheus into the same folder: targets come from a file."""


@dataclass(frozen=True, slots=True)
class ScalingPrograms:
    """Where each lies."""

    prometheus: Path
    prometheus_adapter: Path


def locate_scaling_programs(environ: Mapping[str, str] = os.environ) -> ScalingPrograms:
    """Builds what is missing. Raises `RuntimeError` without Go."""
    flags = {**environ, "GOFLAGS": f"{environ.get('GOFLAGS', '')} {TAGS}".strip()}
    prometheus = GoModule(PROMETHEUS, "monitoring", "github.com/prometheus/prometheus/cmd")
    adapter = GoModule(MODULES / "prometheus-adapter", "prometheus-adapter", f"{ADAPTER}/cmd")
    return ScalingPrograms(
        prometheus=prometheus.build_programs(flags, "prometheus", "promtool") / "prometheus",
        prometheus_adapter=adapter.build_programs(environ, "adapter") / "adapter",
    )
