"""The extender's Leases, as an installation has them: a reset of the cluster takes them away."""

from __future__ import annotations

from tests.support.admission.bench import SYSTEM, ensure_object
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import load_rendered

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"


def install_leases(cluster: ControlPlane) -> None:
    for shipped in [item for item in load_rendered("second-scheduler") if item["kind"] == "Lease"]:
        ensure_object(cluster, LEASES, shipped)
