"""Builds Prometheus, prometheus-adapter and KEDA, at the versions that their modules name, and finds upstream's manifests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_module import GoModule, locate_sources

MODULES = Path(__file__).parent / "modules"
PROMETHEUS = Path(__file__).parents[3] / "alerts" / "programs" / "prometheus"
KEDA = "github.com/kedacore/keda/v2"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
FOLDERS = {KEDA: MODULES / "keda", PROMETHEUS_OPERATOR: MODULES / "prometheus-operator"}
ADAPTER = "sigs.k8s.io/prometheus-adapter"
TAGS = "-tags=remove_all_sd"
"""As in the alerts suite, which builds the same Prometheus into the same folder: targets come from a file."""


@dataclass(frozen=True, slots=True)
class ScalingPrograms:
    """Where each lies."""

    prometheus: Path
    prometheus_adapter: Path
    keda_operator: Path
    keda_metrics_server: Path


def locate_scaling_programs(environ: Mapping[str, str] = os.environ) -> ScalingPrograms:
    """Builds what is missing, and downloads what `locate_upstream` needs. Raises `RuntimeError` without Go."""
    for module in FOLDERS:
        locate_upstream(module, environ)
    flags = {**environ, "GOFLAGS": f"{environ.get('GOFLAGS', '')} {TAGS}".strip()}
    prometheus = GoModule(PROMETHEUS, "monitoring", "github.com/prometheus/prometheus/cmd")
    adapter = GoModule(MODULES / "prometheus-adapter", "prometheus-adapter", f"{ADAPTER}/cmd")
    keda = GoModule(FOLDERS[KEDA], "keda", f"{KEDA}/cmd").build_programs(environ, "operator", "adapter")
    return ScalingPrograms(
        prometheus=prometheus.build_programs(flags, "prometheus", "promtool") / "prometheus",
        prometheus_adapter=adapter.build_programs(environ, "adapter") / "adapter",
        keda_operator=keda / "operator",
        keda_metrics_server=keda / "adapter",
    )


def locate_upstream(module: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Upstream's folder, for its manifests: of `KEDA` or `PROMETHEUS_OPERATOR`. Raises `RuntimeError` without Go."""
    return locate_sources(FOLDERS[module], module, environ)
