"""The workloads' controllers of the embedded cluster: StatefulSets and Deployments unfold into pods.

    an owner and its pods -> plan (`statefulsets.py`, `deployments.py`) -> create, delete, or status

Simpler than the real ones, on purpose: a Deployment owns its pods itself, without a ReplicaSet between them, and a
change of the template deletes all old pods at once instead of rolling. The garbage collection of what the owners
leave behind is here too. It writes through the store alone, and decides anew from the objects after every change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from vrampack.simulator import deployments, owned, statefulsets
from vrampack.simulator.controller import Controller
from vrampack.simulator.errors import StatusError
from vrampack.simulator.kinds import DEPLOYMENT, POD, STATEFUL_SET, WORKLOADS, Kind, Object
from vrampack.simulator.merge import merge
from vrampack.simulator.owned import Plan
from vrampack.simulator.selectors import matches_selector
from vrampack.simulator.store import rfc3339

NAME_TRIES = 8
"""As often as the real server looks for a name that is free."""


class Workloads(Controller):
    """All workload controllers, and the garbage collector, in one."""

    def step(self) -> None:
        if not self._has_news():
            return
        owners = [(kind, item) for kind in WORKLOADS for item in self._store.page(kind, None).items]
        alive = {item["metadata"]["uid"] for _, item in owners}
        pods: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in self._store.page(POD, None).items:
            owner = owned.controller(pod)
            if owner and owned.is_served(owner) and owner.get("uid") not in alive:
                self._delete(pod)
            else:
                pods[owner["uid"] if owner else _orphans_of(pod["metadata"]["namespace"])].append(pod)
        for kind, item in owners:
            self._look_after(
                kind, item, pods[item["metadata"]["uid"]], pods[_orphans_of(item["metadata"]["namespace"])]
            )

    def _has_news(self) -> bool:
        """Whether a pod or a workload has changed; an event or a node alone means nothing here."""
        seen, self._seen = self._seen, self._store.version
        try:
            return any(self._store.changes_since(seen, kind, None) for kind in (POD, *WORKLOADS))
        except StatusError:
            return True  # so long ago that it is forgotten, or never

    def _look_after(self, kind: Kind, owner: Object, pods: Sequence[Object], orphans: list[Object]) -> None:
        if owned.is_terminating(owner):
            self._bury(kind, owner, pods)
        elif not self._adopt(kind, owner, orphans):
            self._carry_out(kind, owner, self._plan(kind, owner, pods))

    def _plan(self, kind: Kind, owner: Object, pods: Sequence[Object]) -> Plan:
        if kind is STATEFUL_SET:
            return statefulsets.plan(owner, pods)
        return deployments.plan(owner, pods, now=rfc3339(self._store.now()))

    def _carry_out(self, kind: Kind, owner: Object, plan: Plan) -> None:
        """The status is written when there is nothing else to do, so that it is written once."""
        has_made = [self._create(owner["metadata"]["namespace"], body) for body in plan.create]
        has_deleted = [self._delete(pod) for pod in plan.delete]
        if not any(has_made + has_deleted) and plan.status != owner["status"]:
            gone = {key: None for key in owner["status"] if key not in plan.status}
            self._patch(kind, owner, {"status": {**gone, **plan.status}}, is_status=True)

    def _create(self, namespace: str, body: Object) -> bool:
        """False where the pod is refused: its name is somebody else's, or the template makes no valid pod."""
        for _ in range(1 if "name" in body["metadata"] else NAME_TRIES):
            with suppress(StatusError):
                self._store.create(POD, namespace, body)
                return True
        return False

    def _delete(self, pod: Object) -> bool:
        """False where that changes nothing, because the pod is leaving already."""
        metadata, before = pod["metadata"], self._store.version
        with suppress(StatusError):
            self._store.delete(
                POD, metadata["namespace"], metadata["name"], {"preconditions": {"uid": metadata["uid"]}}
            )
        return self._store.version != before

    def _adopt(self, kind: Kind, owner: Object, orphans: list[Object]) -> bool:
        """Take in pods that are the owner's by labels and name, and nobody's by reference: nor anybody's after that."""
        found = [pod for pod in orphans if _is_of(kind, owner, pod) and not owned.is_terminating(pod)]
        for pod in found:
            orphans.remove(pod)
            others = pod["metadata"].get("ownerReferences") or []
            self._patch(POD, pod, {"metadata": {"ownerReferences": [*others, owned.reference(kind, owner)]}})
        return bool(found)

    def _bury(self, kind: Kind, owner: Object, pods: Sequence[Object]) -> None:
        """What a deletion with `Orphan` or `Foreground` waits for."""
        finalizers = owner["metadata"].get("finalizers") or []
        if "orphan" in finalizers:
            for pod in pods:
                kept = [each for each in pod["metadata"]["ownerReferences"] if each["uid"] != owner["metadata"]["uid"]]
                self._patch(POD, pod, {"metadata": {"ownerReferences": kept}})
        elif "foregroundDeletion" in finalizers and pods:
            for pod in pods:
                self._delete(pod)
            return
        left = [each for each in finalizers if each not in ("orphan", "foregroundDeletion")]
        if left != finalizers:
            self._patch(kind, owner, {"metadata": {"finalizers": left}})

    def _patch(self, kind: Kind, item: Object, patch: Object, *, is_status: bool = False) -> None:
        metadata = item["metadata"]
        self._store.patch(kind, metadata["namespace"], metadata["name"], patch, merge=merge, is_status=is_status)


def _orphans_of(namespace: str) -> str:
    """The key under which a namespace's pods without owner are kept: no uid has a slash."""
    return f"{namespace}/"


def _is_of(kind: Kind, owner: Object, pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    if not matches_selector(owner["spec"]["selector"], labels):
        return False
    if kind is DEPLOYMENT:
        return owned.label(pod, deployments.HASH) == owned.template_hash(owner)
    return statefulsets.ordinal(owner, pod) is not None
