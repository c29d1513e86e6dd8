"""Pods that wait for volumes, which a test makes when it wants to."""

from __future__ import annotations

from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CHOSEN_NODE = "volume.kubernetes.io/selected-node"
CLASS = "late"
SIZE = {"storage": "1Gi"}


class LateProvisioner:
    """Makes the volume of a claim when the test says so."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        provisioner = {"provisioner": "late.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        cluster.request_ok("POST", CLASSES, {"metadata": {"name": CLASS}} | provisioner)

    def create_pod(self, name: str, units: int) -> None:
        """A pod and its claim, which has the same name."""
        spec = {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "resources": {"requests": SIZE}}
        self._cluster.request_ok("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        pod = pod_manifest(name, units)
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        self._cluster.request_ok("POST", PODS, pod)

    def create_waiting_pod(self, name: str, units: int) -> None:
        """A pod that the scheduler has found a node for, and that waits for its volume there."""
        self.create_pod(name, units)
        self._cluster.wait_until(lambda: name in self.list_chosen_nodes(), what=f"a node is chosen for {name}")

    def list_chosen_nodes(self) -> dict[str, str]:
        """By claim, the node for which its volume is to be made."""
        claims = [claim["metadata"] for claim in self._cluster.request_ok("GET", CLAIMS)["items"]]
        chosen = {each["name"]: each.get("annotations", {}).get(CHOSEN_NODE) for each in claims}
        return {name: node for name, node in chosen.items() if node}

    def provision(self, name: str) -> None:
        """Make the volume, and bind it as the controller of volumes would, which does not run here."""
        claim = self._cluster.request_ok("GET", f"{CLAIMS}/{name}")
        on_node = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": [claim["metadata"]["annotations"][CHOSEN_NODE]],
        }
        spec = {
            "capacity": SIZE,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "local": {"path": f"/volumes/{name}"},
            "claimRef": {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        }
        self._cluster.request_ok("POST", VOLUMES, {"metadata": {"name": name}, "spec": spec})
        done = {f"pv.kubernetes.io/{what}": "yes" for what in ("bind-completed", "bound-by-controller")}
        self._patch(f"{CLAIMS}/{name}", {"metadata": {"annotations": done}, "spec": {"volumeName": name}})
        self._patch(f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound", "capacity": SIZE}})

    def delete_everything(self) -> None:
        for collection in (CLAIMS, VOLUMES):
            self._cluster.request_ok("DELETE", collection)
            for left in self._cluster.request_ok("GET", collection)["items"]:
                self._patch(f"{collection}/{left['metadata']['name']}", {"metadata": {"finalizers": None}})
        self._cluster.request_ok("DELETE", f"{CLASSES}/{CLASS}")

    def _patch(self, path: str, change: object) -> None:
        self._cluster.request_ok("PATCH", path, change, content_type="application/merge-patch+json")
