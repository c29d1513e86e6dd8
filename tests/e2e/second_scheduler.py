"""The policies of the second-scheduler shape, for the tests that want them: elsewhere pods may choose their scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from tests.e2e.admission_pods import a_pod
from tests.e2e.admission_policies import SECOND_SCHEDULER, apply, delete
from tests.e2e.cluster import Cluster


@contextmanager
def applied(cluster: Cluster) -> Iterator[None]:
    """In force inside, and gone again after."""
    pods = "/api/v1/namespaces/default/pods?dryRun=All"

    def probes() -> tuple[int, str, int]:
        _, named = cluster.request("POST", pods, a_pod())
        other, _ = cluster.request("POST", pods, a_pod(schedulerName="someone-else"))
        placed, _ = cluster.request("POST", pods, a_pod(schedulerName="vrampack", nodeName="any"))
        return other, named.get("spec", {}).get("schedulerName", ""), placed

    refused, made = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.CREATED
    apply(cluster, SECOND_SCHEDULER)
    try:
        cluster.wait(
            lambda: probes() == (refused, "vrampack", refused), 20, what="the second scheduler's policies are on"
        )
        yield
    finally:
        delete(cluster, SECOND_SCHEDULER)
        cluster.wait(lambda: probes() == (made, "default-scheduler", made), 20, what="they are off")
