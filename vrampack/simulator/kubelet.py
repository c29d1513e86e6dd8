"""The simulated kubelet of all nodes: bound pods run, terminating pods are removed.

    bound, Pending -> Running and ready        bound, being deleted -> gone at once

No processes run: a container starts as soon as its pod is bound, never fails, never restarts, and stops at once when told
to. A pod on a node that does not exist stays as it is, as in a real cluster.
"""

from __future__ import annotations

from vrampack.simulator.controller import Controller
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import ObjectStore, format_rfc3339
from vrampack.simulator.patches import apply_strategic_merge_patch
from vrampack.simulator.resource_kinds import NODE, POD, Object

POD_NETWORK = "10.244"
"""A made-up network, whose addresses pods get in the order in which they start."""
HOSTS_PER_BLOCK = 254


class SimulatedKubelet(Controller):
    """All nodes' kubelets in one."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._started_count = 0

    def reconcile(self) -> None:
        for pod in self._list_changed_pods():
            metadata = pod["metadata"]
            try:
                self._store.get(NODE, "", pod["spec"]["nodeName"])
                current = self._store.get(POD, metadata["namespace"], metadata["name"])
            except StatusError:
                continue  # no such node, or the pod is gone already
            if current["metadata"]["uid"] == metadata["uid"]:
                self._reconcile_pod(current)

    def _list_changed_pods(self) -> list[Object]:
        """The pods that changed; all pods at first, after a new node, and when the log no longer goes back far enough."""
        seen, self._observed_version = self._observed_version, self._store.version
        try:
            has_new_node = any(
                change.change_type == "ADDED" for change in self._store.read_changes_since(seen, NODE, None)
            )
            pods = [change.item for change in self._store.read_changes_since(seen, POD, None)]
        except StatusError:
            has_new_node, pods = True, []
        if has_new_node:
            pods = list(self._store.read_page(POD, None).items)
        return [pod for pod in pods if pod["spec"].get("nodeName")]

    def _reconcile_pod(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            self._store.delete(POD, metadata["namespace"], metadata["name"], {"gracePeriodSeconds": 0})
        elif pod["status"].get("phase") == "Pending":
            status = {"status": self._build_running_status(pod)}
            self._store.patch(
                POD,
                metadata["namespace"],
                metadata["name"],
                status,
                apply_patch=apply_strategic_merge_patch,
                is_status=True,
            )

    def _build_running_status(self, pod: Object) -> Object:
        now = format_rfc3339(self._store.current_time())
        address = self._allocate_address()
        status = {
            "phase": "Running",
            "startTime": now,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                _build_true_condition(kind, now) for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [_build_running_container(container, now) for container in pod["spec"]["containers"]],
        }
        if before := pod["spec"].get("initContainers"):
            status["initContainerStatuses"] = [_build_init_container(container, now) for container in before]
        if host := self._find_host_address(pod["spec"]["nodeName"]):
            status |= {"hostIP": host, "hostIPs": [{"ip": host}]}
        return status

    def _allocate_address(self) -> str:
        block, host = divmod(self._started_count, HOSTS_PER_BLOCK)
        self._started_count += 1
        return f"{POD_NETWORK}.{block % 256}.{host + 1}"

    def _find_host_address(self, node: str) -> str:
        addresses = self._store.get(NODE, "", node)["status"].get("addresses") or []
        return next((each["address"] for each in addresses if each.get("type") == "InternalIP"), "")


def _build_true_condition(kind: str, now: str) -> Object:
    return {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}


def _build_running_container(container: Object, now: str) -> Object:
    return _build_container_status(container, {"running": {"startedAt": now}}, is_started=True)


def _build_init_container(container: Object, now: str) -> Object:
    """The status of an init container, which has finished unless it is a sidecar."""
    if container.get("restartPolicy") == "Always":
        return _build_running_container(container, now)
    over = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return _build_container_status(container, {"terminated": over}, is_started=False)


def _build_container_status(container: Object, state: Object, *, is_started: bool) -> Object:
    return {
        "name": container.get("name", ""),
        "image": container.get("image", ""),
        "imageID": "",
        "state": state,
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "started": is_started,
    }
