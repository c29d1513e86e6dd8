"""The policies that send pods to our scheduler and to no other are in force in every test, unless one takes them away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from tests.support.admission.pods import admission_pod
from tests.support.admission.policies import SECOND_SCHEDULER, apply_policies, delete_policies
from tests.support.control_plane.cluster import ControlPlane


@contextmanager
def without_second_scheduler(cluster: ControlPlane) -> Iterator[None]:
    """Pods may choose their scheduler, or a node, inside; afterwards the policies are in force again."""
    pods = "/api/v1/namespaces/default/pods?dryRun=All"

    def probes() -> tuple[int, str, int]:
        _, named = cluster.request("POST", pods, admission_pod())
        other, _ = cluster.request("POST", pods, admission_pod(schedulerName="someone-else"))
        placed, _ = cluster.request("POST", pods, admission_pod(schedulerName="vrampack", nodeName="any"))
        return other, named.get("spec", {}).get("schedulerName", ""), placed

    refused, made = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.CREATED
    delete_policies(cluster, SECOND_SCHEDULER)
    try:
        cluster.wait_until(lambda: probes() == (made, "default-scheduler", made), 20, what="they are off")
        yield
    finally:
        apply_policies(cluster, SECOND_SCHEDULER)
        cluster.wait_until(
            lambda: probes() == (refused, "vrampack", refused), 20, what="the second scheduler's policies are on"
        )
