"""Starts extenders and schedulers for the benchmarks, with the shipped configurations except for the changes below.

The scheduler's configuration uses a free port instead of the usual one, and has no leader election, so that a fresh scheduler
need not wait for the lease of the one before it. The scheduler logs only errors, the extender as shipped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests.e2e import in_cluster, kubeadm
from tests.e2e.in_cluster import ExtenderProgram
from tests.support.control_plane import binaries
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.processes import ManagedProcess, choose_free_ports

GPU_SCHEDULER, PLAIN_SCHEDULER = "vrampack", "default-scheduler"
PLAIN_CONFIGURATION: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
"""A cluster's own scheduler that does not know the extender."""


def read_second_scheduler_config(cluster: ControlPlane) -> Json:
    """The configuration of the recommended install."""
    return yaml.safe_load(in_cluster.installed_configuration(cluster, in_cluster.SCHEDULER))


def read_own_scheduler_config() -> Json:
    """The configuration for a cluster's own scheduler, as kubeadm's hosts get it.

    It runs under our scheduler's name and account in place of that scheduler, so that the admission policies can stay.
    """
    made = yaml.safe_load((kubeadm.ON_THE_HOST / "scheduler.yaml").read_text())
    del made["clientConnection"]["kubeconfig"]
    return made | {"profiles": [{"schedulerName": GPU_SCHEDULER}]}


@contextmanager
def run_our_extender(
    cluster: ControlPlane, *, decide: str = "prioritize", reads_usage: bool = False
) -> Iterator[ExtenderProgram]:
    """Run the extender as installed, except for `decide`, and for reading the agents' Leases if `reads_usage`."""
    shipped = yaml.safe_load(in_cluster.installed_configuration(cluster, in_cluster.EXTENDER))
    changed: Json = {"decide": decide} | ({"usage_leases": {"namespace": NAMESPACE}} if reads_usage else {})
    (port,) = choose_free_ports(1)
    made = in_cluster.start_extender(cluster, port=port, configuration=yaml.safe_dump(shipped | changed))
    with _stop_afterwards(made.process):
        yield made


@contextmanager
def run_idle_extender(cluster: ControlPlane, *flags: str) -> Iterator[ExtenderProgram]:
    """Run the extender that does nothing; its source lists its flags."""
    (program,) = binaries.locate_programs(programs=(binaries.IDLE_EXTENDER,)).values()
    (port,) = choose_free_ports(1)
    made = in_cluster.start_extender(cluster, port=port, command=(program, *flags))
    with _stop_afterwards(made.process):
        yield made


@contextmanager
def run_scheduler(
    cluster: ControlPlane, configuration: Json, extender: ExtenderProgram | None = None
) -> Iterator[ManagedProcess]:
    """Run a scheduler, ready when the block begins; without `extender` its configuration has none."""
    made = copy.deepcopy(configuration) | {"leaderElection": {"leaderElect": False}}
    if extender is None:
        made.pop("extenders", None)
    else:
        made["extenders"][0]["urlPrefix"] = extender.url
    process = in_cluster.start_scheduler(cluster, configuration=yaml.safe_dump(made), verbosity=0)
    with _stop_afterwards(process):
        yield process


@contextmanager
def _stop_afterwards(process: ManagedProcess) -> Iterator[None]:
    """Stop the process at the end of the block; it must not have ended before."""
    try:
        yield
        if process.has_crashed:
            raise RuntimeError(f"{process.name} ended by itself:\n{process.log_tail()}")
    finally:
        process.kill()
