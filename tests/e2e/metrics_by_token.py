"""The objects that the chart makes for metrics by TLS and a token: what lets agents ask whose a scraper's token is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.chart.helm import locate_helm
from tests.support.chart.rendering import parse_objects, run_helm
from tests.support.control_plane.cluster import ControlPlane, Json

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLURALS = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}


@contextmanager
def with_metrics_by_token(cluster: ControlPlane, further: Sequence[Json] = ()) -> Iterator[None]:
    """Roles and bindings with `agent.metrics.tlsSecret` set, and the test's own; all are gone afterwards."""
    asked = ("--set", "agent.metrics.tlsSecret=agent-tls", "--show-only", "templates/agent/metrics.yaml")
    objects = [*parse_objects(run_helm(locate_helm(), "template", *asked)), *further]
    paths = [f"{RBAC}/{PLURALS[each['kind']]}" for each in objects]
    try:
        for path, each in zip(paths, objects, strict=True):
            cluster.request_ok("POST", path, each)
        yield
    finally:
        for path, each in zip(paths, objects, strict=True):
            cluster.request("DELETE", f"{path}/{each['metadata']['name']}")
