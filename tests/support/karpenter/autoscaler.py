"""Karpenter beside a control plane, as administrator and without a lease: it is the only one.

Its provider makes the Node object of each NodeClaim and nothing else: nothing makes a node Ready or runs a pod. Its ports cannot be bound
to one address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_module import GoModule, locate_sources
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports

MODULE = Path(__file__).parent / "module"
PATH_OF_MODULE = "sigs.k8s.io/karpenter"
TOOLCHAIN = "go1.26.9"
"""The least that this release takes."""
DEFINITIONS = ("pkg/apis/crds", "kwok/apis/crds")
READY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RunningKarpenter:
    """The process, and where its metrics are read."""

    process: ManagedProcess
    metrics_url: str


def build_karpenter(environ: Mapping[str, str] = os.environ) -> Path:
    """The program, built once."""
    module = GoModule(MODULE, "karpenter", PATH_OF_MODULE, toolchain=TOOLCHAIN)
    return module.build_programs(environ, "kwok") / "kwok"


def list_definitions(environ: Mapping[str, str] = os.environ) -> Sequence[Path]:
    """The files of its own and its provider's kinds, as they are released."""
    sources = locate_sources(MODULE, PATH_OF_MODULE, environ, toolchain=TOOLCHAIN)
    return sorted(file for folder in DEFINITIONS for file in (sources / folder).glob("*.yaml"))


@contextmanager
def run_karpenter(
    directory: Path, kubeconfig: Path, instance_types: Sequence[Mapping[str, object]], *, gates: str = ""
) -> Iterator[RunningKarpenter]:
    """Karpenter with these instance types, in the form of its provider's file, ready; its kinds must be defined. `gates` are its feature gates.

    Raises `RuntimeError` if it ends by itself.
    """
    types = directory / "instance_types.json"
    types.write_text(json.dumps(instance_types))
    metrics_port, health_port = choose_free_ports(2)
    flags = [
        f"--instance-types-file-path={types}",
        "--disable-leader-election=true",
        f"--metrics-port={metrics_port}",
        f"--health-probe-port={health_port}",
        f"--feature-gates={gates}",
    ]
    account = {"KUBECONFIG": str(kubeconfig)}
    process = ManagedProcess("karpenter", [build_karpenter(), *flags], directory=directory, environment=account)
    process.start()
    try:
        process.wait_ready(f"http://{LOOPBACK}:{health_port}/readyz", timeout_seconds=READY_SECONDS)
        yield RunningKarpenter(process, f"http://{LOOPBACK}:{metrics_port}/metrics")
        if process.has_crashed:
            raise RuntimeError(f"karpenter ended by itself\n{process.log_tail()}")
    finally:
        process.kill()
