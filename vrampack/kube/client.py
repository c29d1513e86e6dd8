"""The calls to an API server that this project makes, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from vrampack.cards import well_known
from vrampack.kube.answers import decode_answer
from vrampack.kube.api_caller import ApiCaller, build_selector_query
from vrampack.kube.api_request import MERGE_PATCH, STRATEGIC_MERGE_PATCH, build_path
from vrampack.kube.dra_objects import ResourceSliceObject
from vrampack.kube.errors import RefusedError
from vrampack.kube.list_page import MAX_OBJECT_BYTES, ListPage, build_page_query, decode_page
from vrampack.kube.objects import LeaseObject, NodeObject, PodObject

SUCCESS = ("Status", "")
"""The answer to a call that has an effect and makes no object."""

_SLICES = msgspec.json.Decoder(ListPage[ResourceSliceObject])


class Api(ApiCaller):
    """One API server. Calls raise `RefusedError` when nothing was read or written, and `NoAnswerError` when that is not known."""

    async def list_device_classes(self, *, limit: int, token: str, max_bytes: int, timeout_seconds: float) -> bytes:
        """One page of the cluster's device classes, as `list_page`. `RefusedError` with 404: this API server has no such kind."""
        return await self._list_resources(
            "deviceclasses", build_page_query(limit, token), timeout_seconds, max_bytes=max_bytes
        )

    async def list_resource_slices(
        self, *, node: str, driver: str, timeout_seconds: float
    ) -> list[ResourceSliceObject]:
        """The slices of one DRA driver on one node, from the API server's cache. 404: this API server has no such kind."""
        query = {"resourceVersion": "0"} | build_selector_query(f"spec.nodeName={node},spec.driver={driver}")
        body = await self._list_resources("resourceslices", query, timeout_seconds)
        return list(decode_page(body, _SLICES, "resourceslices").items or ())

    async def get_pod(self, namespace: str, name: str, *, timeout_seconds: float) -> PodObject | None:
        """One pod as the API server has it now; None when there is none."""
        body = await self.get_pod_bytes(namespace, name, timeout_seconds=timeout_seconds)
        return None if body is None else decode_answer(body, PodObject, f"get pod {namespace}/{name}")

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:
        """The same pod undecoded, for callers that need more of it than `PodObject` has."""
        return await self._get_object(build_path("pods", namespace, name), "pods", "Pod", name, timeout_seconds)

    async def get_node(self, name: str, *, timeout_seconds: float) -> NodeObject | None:
        """One node as the API server has it now; None when there is none."""
        body = await self._get_object(build_path("nodes", name=name), "nodes", "Node", name, timeout_seconds)
        return None if body is None else decode_answer(body, NodeObject, f"get node {name}")

    async def patch_node(self, name: str, body: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Merge `body` into the node; with a `metadata.resourceVersion` in it, a node that changed since gives a 409.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        path = build_path("nodes", name=name)
        await self._call("PATCH", path, "nodes", wanted=("Node", name), body=body, seconds=timeout_seconds)

    async def patch_node_condition(self, name: str, condition: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Set the condition of the node with this `type`; the others stay.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        await self._call(
            "PATCH",
            build_path("nodes", name=name) + "/status",
            "nodes/status",
            wanted=("Node", name),
            body={"status": {"conditions": [condition]}},
            seconds=timeout_seconds,
            patch=STRATEGIC_MERGE_PATCH,
        )

    async def bind(  # noqa: PLR0913 - the fields of a Binding
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        annotations: Mapping[str, str],
        *,
        version: str = "",
        timeout_seconds: float,
    ) -> None:
        """Bind the pod of this uid to the node and give it these annotations, in one step or not at all.

        With a `version`, only if that is still the pod's resourceVersion. Raises `RefusedError`, or `NoAnswerError` when it is
        not known whether anything was written. A 409 is not definite: an API server also answers 409 for errors of its
        store (`assignPod` in pkg/registry/core/pod/storage/storage.go of Kubernetes).
        """
        metadata: dict[str, object] = {"name": name, "namespace": namespace, "uid": uid}
        if version:
            metadata["resourceVersion"] = version
        if annotations:
            metadata["annotations"] = dict(annotations)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
        }
        path = build_path("pods", namespace, name) + "/binding"
        await self._call("POST", path, "pods/binding", wanted=SUCCESS, body=binding, seconds=timeout_seconds)

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str], *, timeout_seconds: float
    ) -> PodObject:
        """Set annotations of the pod with this uid through its status, which needs no right on the pod itself.

        Returns the pod as it is then. Raises `RefusedError` when nothing was written (422 if the pod has another uid),
        `NoAnswerError` when that is not known.
        """
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        return await self._patch_pod_status(namespace, name, body, timeout_seconds)

    async def nominate_pod(
        self, namespace: str, name: str, uid: str, node_name: str, *, timeout_seconds: float
    ) -> PodObject:
        """Nominate the pod with this uid to a node where others are evicted for it, or to none. Else as `patch_pod_status`.

        A condition says so too: schedulers end a nomination, and leave conditions of others alone.
        """
        condition = {"type": well_known.PREEMPTION_CONDITION, "status": "True" if node_name else "False"}
        status = {
            "nominatedNodeName": node_name or None,
            "conditions": [condition | {"reason": "PodsEvicted", "message": node_name}],
        }
        body = {"metadata": {"uid": uid}, "status": status}
        return await self._patch_pod_status(namespace, name, body, timeout_seconds, patch=STRATEGIC_MERGE_PATCH)

    async def patch_pod_condition(
        self, namespace: str, name: str, uid: str, condition: Mapping[str, object], *, timeout_seconds: float
    ) -> PodObject:
        """Set the condition of the pod with this uid that has this `type`; the others stay. Else as `patch_pod_status`."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        return await self._patch_pod_status(
            namespace,
            name,
            body,
            timeout_seconds,
            patch=STRATEGIC_MERGE_PATCH,
            query={"fieldManager": "vrampack-answers"},
        )

    async def create_pod(self, namespace: str, pod: Mapping[str, object], *, timeout_seconds: float) -> None:
        """Raises `RefusedError` when nothing was written (409 if there is one of this name), `NoAnswerError` when that is not known."""
        path = build_path("pods", namespace)
        await self._call("POST", path, "pods", wanted=("Pod", ""), body=pod, seconds=timeout_seconds)

    async def delete_pod(self, namespace: str, name: str, uid: str, *, timeout_seconds: float) -> None:
        """Delete the pod with this uid. Else as `evict`."""
        path = build_path("pods", namespace, name)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._call(
            "DELETE", path, "pods", verb="delete", wanted=("Pod", name), body=body, seconds=timeout_seconds
        )

    async def evict(
        self, namespace: str, name: str, uid: str, *, timeout_seconds: float, is_dry_run: bool = False
    ) -> None:
        """Request the eviction of the pod with this uid; 429 when a disruption budget does not allow it now.

        With `is_dry_run` it is only checked. Raises `RefusedError` when nothing was written (409 if the pod has another uid), `NoAnswerError` when that is
        not known.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = build_path("pods", namespace, name) + "/eviction"
        query = {"dryRun": "All"} if is_dry_run else {}
        await self._call(
            "POST", path, "pods/eviction", wanted=SUCCESS, query=query, body=eviction, seconds=timeout_seconds
        )

    async def create_event(self, namespace: str, event: Mapping[str, object], *, timeout_seconds: float) -> None:
        path = build_path("events", namespace)
        await self._call("POST", path, "events", wanted=("Event", ""), body=event, seconds=timeout_seconds)

    async def create_review(
        self, group: str, kind: str, resource: str, spec: Mapping[str, object], *, timeout_seconds: float
    ) -> bytes:
        """Create a review, which the API server does not store; returns the object with its status, undecoded."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{resource}"
        return await self._call("POST", path, resource, wanted=(kind, ""), body=body, seconds=timeout_seconds)

    async def write_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        """Merge `body`, a whole Lease, into the Lease of that name, or create it.

        Raises `RefusedError` when nothing was written, `NoAnswerError` when that is not known.
        """
        try:
            await self.patch_lease(namespace, name, body, timeout_seconds=timeout_seconds)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            path, wanted = build_path("leases", namespace), ("Lease", name)
            await self._call("POST", path, "leases", wanted=wanted, body=body, seconds=timeout_seconds)

    async def get_lease(self, namespace: str, name: str, *, timeout_seconds: float) -> LeaseObject | None:
        path = build_path("leases", namespace, name)
        body = await self._get_object(path, "leases", "Lease", name, timeout_seconds)
        return None if body is None else decode_answer(body, LeaseObject, f"get lease {namespace}/{name}")

    async def patch_lease(
        self, namespace: str, name: str, body: Mapping[str, object], *, timeout_seconds: float
    ) -> None:
        """Merge `body` into the Lease; with a `metadata.resourceVersion` in it, a Lease that changed since gives a 409."""
        path = build_path("leases", namespace, name)
        await self._call("PATCH", path, "leases", wanted=("Lease", name), body=body, seconds=timeout_seconds)

    async def _patch_pod_status(
        self,
        namespace: str,
        name: str,
        body: Mapping[str, object],
        timeout_seconds: float,
        *,
        patch: str = MERGE_PATCH,
        query: Mapping[str, str] | None = None,
    ) -> PodObject:
        path = build_path("pods", namespace, name) + "/status"
        wanted = ("Pod", name)
        answer = await self._call(
            "PATCH", path, "pods/status", wanted=wanted, query=query, body=body, seconds=timeout_seconds, patch=patch
        )
        return decode_answer(answer, PodObject, f"patch pod {namespace}/{name}")

    async def _list_resources(
        self, resource: str, query: Mapping[str, str], timeout_seconds: float, *, max_bytes: int = MAX_OBJECT_BYTES
    ) -> bytes:
        """A list of objects of dynamic resource allocation (DRA)."""
        path = f"/apis/resource.k8s.io/v1/{resource}"
        return await self._call("GET", path, resource, query=query, seconds=timeout_seconds, max_bytes=max_bytes)
