"""The extender's one Lease on a real API server, with the shipped rights: one process holds it, and it reaches no other Lease."""

from __future__ import annotations

import time
from http import HTTPStatus

from tests.e2e.shipped_leases import LEASES, install_leases
from tests.support.admission.bench import MERGE, SYSTEM, ensure_object
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifests import load_rendered
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.leader_lease import LeaderLease

EXTENDER = "vrampack-extender"
LEASE = "vrampack-preemption"


def claim(api: Api, identity: str) -> LeaderLease:
    return LeaderLease(api, namespace=SYSTEM, name=LEASE, identity=identity, clock=time.monotonic, now=time.time)


async def test_one_extender_holds_the_shipped_lease_until_it_gives_it_back(cluster: ControlPlane) -> None:
    install_leases(cluster)
    api = Api(await load_credentials(cluster.kubeconfig(SYSTEM, EXTENDER)))
    try:
        one, two = claim(api, "one"), claim(api, "two")
        await one.renew()
        await two.renew()
        await one.renew()
        assert (one.is_held, two.is_held) == (True, False)
        await one.release()
        await two.renew()
        assert (one.is_held, two.is_held) == (False, True)
    finally:
        await api.close()
    spec = cluster.request_ok("GET", f"{LEASES}/{LEASE}")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 2)


THEFT = {"metadata": {"name": "made"}, "spec": {"holderIdentity": "thief"}}
ATTACKS = {
    "another Lease is taken": ("PATCH", "/other", THEFT["spec"]),
    "another Lease is deleted": ("DELETE", "/other", None),
    "a Lease is made": ("POST", "", THEFT),
    "the Lease is deleted": ("DELETE", f"/{LEASE}", None),
}


def test_the_right_reaches_no_other_lease(cluster: ControlPlane) -> None:
    """With an account that has the shipped role and nothing else: the extender's may have the scheduler's rights too."""
    install_leases(cluster)
    cluster.request_ok("POST", LEASES, {"metadata": {"name": "other"}, "spec": {"holderIdentity": "another"}})
    namespace = f"/api/v1/namespaces/{SYSTEM}"
    ensure_object(cluster, f"{namespace}/serviceaccounts", {"metadata": {"name": "holder"}})
    (shipped,) = [
        item for item in load_rendered("second-scheduler") if item["kind"] == "RoleBinding" and is_extenders(item)
    ]
    binding = {"metadata": {"name": "holder"}, "roleRef": shipped["roleRef"]}
    subjects = [{"kind": "ServiceAccount", "name": "holder", "namespace": SYSTEM}]
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings"
    ensure_object(cluster, path, {**binding, "subjects": subjects})
    token = cluster.token(SYSTEM, "holder")
    cluster.wait_until(
        lambda: cluster.request("GET", f"{LEASES}/{LEASE}", token=token)[0] == HTTPStatus.OK, what="the role is bound"
    )
    answers = {
        name: cluster.request(method, LEASES + path, body, token=token, content_type=MERGE)[0]
        for name, (method, path, body) in ATTACKS.items()
    }
    assert answers == dict.fromkeys(ATTACKS, HTTPStatus.FORBIDDEN)


def is_extenders(binding: Json) -> bool:
    return bool(binding["roleRef"]["name"] == EXTENDER and binding["subjects"][0]["name"] == EXTENDER)
