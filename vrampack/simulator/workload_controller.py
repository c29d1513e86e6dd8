"""The workload controllers of the embedded cluster: they create the pods of StatefulSets and Deployments.

    an owner and its pods -> plan (`stateful_set_plan.py`, `deployment_plan.py`) -> create, delete, or status

They are simpler than the real ones on purpose: a Deployment owns its pods directly, without a ReplicaSet, and a change to
the template deletes all old pods at once instead of rolling. The controller also collects what deleted owners leave behind.
It writes only through the store, and reconciles from the objects after every change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from vrampack.simulator import deployment_plan, owned_pods, stateful_set_plan
from vrampack.simulator.controller import Controller
from vrampack.simulator.errors import StatusError
from vrampack.simulator.object_store import format_rfc3339
from vrampack.simulator.owned_pods import WorkloadPlan
from vrampack.simulator.patches import apply_merge_patch
from vrampack.simulator.resource_kinds import DEPLOYMENT, POD, STATEFUL_SET, WORKLOAD_KINDS, Object, ResourceKind
from vrampack.simulator.selectors import matches_selector

MAX_NAME_ATTEMPTS = 8
"""As often as the real server tries to find a free name."""


class WorkloadController(Controller):
    """All workload controllers, and the garbage collector, in one."""

    def reconcile(self) -> None:
        if not self._has_changes():
            return
        owners = [(kind, item) for kind in WORKLOAD_KINDS for item in self._store.read_page(kind, None).items]
        alive = {item["metadata"]["uid"] for _, item in owners}
        pods: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in self._store.read_page(POD, None).items:
            owner = owned_pods.find_controller(pod)
            if owner and owned_pods.is_workload_reference(owner) and owner.get("uid") not in alive:
                self._delete_pod(pod)
            else:
                pods[owner["uid"] if owner else _build_orphan_key(pod["metadata"]["namespace"])].append(pod)
        for kind, item in owners:
            self._reconcile_owner(
                kind, item, pods[item["metadata"]["uid"]], pods[_build_orphan_key(item["metadata"]["namespace"])]
            )

    def _has_changes(self) -> bool:
        """Whether a pod or a workload has changed; events and nodes do not matter here."""
        seen, self._observed_version = self._observed_version, self._store.version
        try:
            return any(self._store.read_changes_since(seen, kind, None) for kind in (POD, *WORKLOAD_KINDS))
        except StatusError:
            return True  # too long ago for the log, or never reconciled

    def _reconcile_owner(
        self, kind: ResourceKind, owner: Object, pods: Sequence[Object], orphans: list[Object]
    ) -> None:
        if owned_pods.is_terminating(owner):
            self._finalize_owner(kind, owner, pods)
        elif not self._adopt_orphans(kind, owner, orphans):
            self._apply_plan(kind, owner, self._plan_pods(kind, owner, pods))

    def _plan_pods(self, kind: ResourceKind, owner: Object, pods: Sequence[Object]) -> WorkloadPlan:
        if kind is STATEFUL_SET:
            return stateful_set_plan.plan_stateful_set(owner, pods)
        return deployment_plan.plan_deployment(owner, pods, now=format_rfc3339(self._store.current_time()))

    def _apply_plan(self, kind: ResourceKind, owner: Object, plan: WorkloadPlan) -> None:
        """Apply a plan. The status is written only when nothing else is left to do, so that it is written once."""
        has_made = [self._create_pod(owner["metadata"]["namespace"], body) for body in plan.pods_to_create]
        has_deleted = [self._delete_pod(pod) for pod in plan.pods_to_delete]
        if not any(has_made + has_deleted) and plan.status != owner["status"]:
            gone = {key: None for key in owner["status"] if key not in plan.status}
            self._patch_object(kind, owner, {"status": {**gone, **plan.status}}, is_status=True)

    def _create_pod(self, namespace: str, body: Object) -> bool:
        """Create a pod; False if it is refused, because its name is taken or the template is invalid."""
        for _ in range(1 if "name" in body["metadata"] else MAX_NAME_ATTEMPTS):
            with suppress(StatusError):
                self._store.create(POD, namespace, body)
                return True
        return False

    def _delete_pod(self, pod: Object) -> bool:
        """Delete a pod; False if it is terminating already."""
        metadata, before = pod["metadata"], self._store.version
        with suppress(StatusError):
            self._store.delete(
                POD, metadata["namespace"], metadata["name"], {"preconditions": {"uid": metadata["uid"]}}
            )
        return self._store.version != before

    def _adopt_orphans(self, kind: ResourceKind, owner: Object, orphans: list[Object]) -> bool:
        """Adopt pods without an owner reference that belong to the owner by labels and name: set the reference."""
        found = [pod for pod in orphans if _belongs_to(kind, owner, pod) and not owned_pods.is_terminating(pod)]
        for pod in found:
            orphans.remove(pod)
            others = pod["metadata"].get("ownerReferences") or []
            self._patch_object(
                POD, pod, {"metadata": {"ownerReferences": [*others, owned_pods.build_owner_reference(kind, owner)]}}
            )
        return bool(found)

    def _finalize_owner(self, kind: ResourceKind, owner: Object, pods: Sequence[Object]) -> None:
        """Do what a deletion with `Orphan` or `Foreground` waits for."""
        finalizers = owner["metadata"].get("finalizers") or []
        if "orphan" in finalizers:
            for pod in pods:
                kept = [each for each in pod["metadata"]["ownerReferences"] if each["uid"] != owner["metadata"]["uid"]]
                self._patch_object(POD, pod, {"metadata": {"ownerReferences": kept}})
        elif "foregroundDeletion" in finalizers and pods:
            for pod in pods:
                self._delete_pod(pod)
            return
        left = [each for each in finalizers if each not in ("orphan", "foregroundDeletion")]
        if left != finalizers:
            self._patch_object(kind, owner, {"metadata": {"finalizers": left}})

    def _patch_object(self, kind: ResourceKind, item: Object, patch: Object, *, is_status: bool = False) -> None:
        metadata = item["metadata"]
        self._store.patch(
            kind, metadata["namespace"], metadata["name"], patch, apply_patch=apply_merge_patch, is_status=is_status
        )


def _build_orphan_key(namespace: str) -> str:
    """The key for a namespace's pods without an owner; it has a slash, which no uid has."""
    return f"{namespace}/"


def _belongs_to(kind: ResourceKind, owner: Object, pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    if not matches_selector(owner["spec"]["selector"], labels):
        return False
    if kind is DEPLOYMENT:
        return owned_pods.get_label(pod, deployment_plan.HASH_LABEL) == owned_pods.hash_template(owner)
    return stateful_set_plan.parse_ordinal(owner, pod) is not None
