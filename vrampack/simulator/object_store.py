"""The object store of the embedded API server: objects, one version counter, and the change log that watches read.

    create / patch / delete / bind --> version + 1 --> objects, log --> listeners

Every change is one step of the counter, so the log is addressed by version; objects are values that are replaced,
so a list of many pages is a snapshot kept by reference. `compact` and the limits below forget old versions: requests for
these get 410, as from the real server. No network, no clock of its own, no await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from vrampack.simulator import errors, object_creation, pod_strategy, workload_strategy
from vrampack.simulator.pagination import ContinueToken, ListSnapshot, ObjectPage
from vrampack.simulator.patches import PatchFunction
from vrampack.simulator.resource_kinds import KINDS_BY_PLURAL, POD, WORKLOAD_KINDS, Object, ResourceKind
from vrampack.simulator.selectors import SELECT_EVERYTHING, ObjectSelector

Clock: TypeAlias = Callable[[], datetime]
ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

LOG_LENGTH = 100_000
"""Changes kept for watches; more than any test makes, and about 100 MB if each is a whole pod."""
BACKGROUND_POLICY = "Background"
PROPAGATION_FINALIZERS = {BACKGROUND_POLICY: "", "Orphan": "orphan", "Foreground": "foregroundDeletion"}
"""The finalizer through which a deletion's `propagationPolicy` waits for a controller."""
MAX_SNAPSHOTS = 64
"""Paged lists that may be open at the same time; a client has one or two."""


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One step of the version counter, as a watch sends it."""

    version: int
    change_type: ChangeType
    kind: ResourceKind
    item: Object
    previous_item: Object | None = None
    """The object before the change, for watches that select some objects only."""


class ObjectStore:
    """All objects of one cluster. Every method is one transaction: it changes everything or raises `StatusError`."""

    def __init__(self, *, now: Clock, new_uid: Callable[[], str], log_length: int = LOG_LENGTH) -> None:
        self._now = now
        self._new_uid = new_uid
        self._log_length = log_length
        self._objects: dict[str, dict[str, Object]] = {plural: {} for plural in KINDS_BY_PLURAL}
        self._snapshots: dict[tuple[str, int], ListSnapshot] = {}
        self._log: list[StoreChange] = []
        self._compacted = 1  # version 0 means "any" in requests, so the first list must not return it
        self._listeners: list[Callable[[], None]] = []
        self._is_dry_run = False

    @property
    def version(self) -> int:
        return self._compacted + len(self._log)

    def current_time(self) -> datetime:
        return self._now()

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Inside the block, changes are checked and answered as usual, but not made (`dryRun`). Do not await in it."""
        self._is_dry_run = True
        try:
            yield
        finally:
            self._is_dry_run = False

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object:
        item = self._objects[kind.plural].get(kind.build_key(namespace, name))
        if item is None:
            raise errors.not_found(kind, name)
        return item

    def read_page(
        self,
        kind: ResourceKind,
        namespace: str | None,
        *,
        limit: int = 0,
        token: ContinueToken | None = None,
        selector: ObjectSelector = SELECT_EVERYTHING,
    ) -> ObjectPage:
        """Up to `limit` objects of one snapshot (0: all of them), of one namespace or of all."""
        snapshot = self._get_snapshot(kind) if token is None else self._snapshots.get((kind.plural, token.version))
        if snapshot is None:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        start = token.start if token else ""
        page = snapshot.read_page(f"{namespace}/" if namespace else "", limit=limit, start=start, selector=selector)
        if page.continue_token is not None:
            self._retain_snapshot(kind, snapshot)
        return page

    def read_changes_since(self, version: int, kind: ResourceKind, namespace: str | None) -> list[StoreChange]:
        """The changes after `version`, in order, for a watch that has seen it."""
        if version < self._compacted:
            raise errors.expired(f"too old resource version: {version} ({self._compacted})")
        return [
            change
            for change in self._log[version - self._compacted :]
            if change.kind is kind and namespace in (None, change.item["metadata"].get("namespace"))
        ]

    def create(self, kind: ResourceKind, namespace: str, body: Object) -> Object:
        item = object_creation.build_object(
            kind, namespace, body, uid=self._new_uid(), timestamp=format_rfc3339(self._now())
        )
        return self._add_object(kind, item)

    def restore(self, kind: ResourceKind, namespace: str, body: Object) -> Object:
        """Put back an object that existed before, with uid, status and nodeName, as a restored backup of etcd does."""
        given = body.get("metadata") or {}
        fresh = {"uid": self._new_uid(), "creationTimestamp": format_rfc3339(self._now())}
        place = {"namespace": namespace} if kind.is_namespaced else {}
        content = {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}
        return self._add_object(kind, {"spec": {}, "status": {}, **content, "metadata": fresh | given | place})

    def patch(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        patch: Object,
        *,
        apply_patch: PatchFunction,
        is_status: bool,
    ) -> Object:
        """Apply a patch to the object or to its `status`. A patch that changes nothing uses no version."""
        old = self.get(kind, namespace, name)
        new = apply_patch(old, {key: value for key, value in patch.items() if key not in ("kind", "apiVersion")})
        wanted = new.get("metadata") or {}
        _check_identity(kind, old["metadata"], wanted)
        metadata = _merge_metadata(old["metadata"], wanted)
        if is_status:
            new = {**old, "status": new.get("status") or {}, "metadata": metadata}
        elif kind.has_status:
            new = {**new, "status": old["status"], "metadata": metadata}
        if kind is POD and not is_status:
            new = pod_strategy.prepare_for_update(old, new)
        elif kind in WORKLOAD_KINDS and not is_status:
            new = workload_strategy.prepare_for_update(kind, old, new)
        object_creation.check_patched_metadata(kind, metadata)
        if new == old:
            return old
        is_last_finalizer = "finalizers" in old["metadata"] and "finalizers" not in metadata
        is_gone = is_last_finalizer and "deletionTimestamp" in metadata and not _read_grace_seconds(metadata)
        return self._commit("DELETED" if is_gone else "MODIFIED", kind, new)

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Set node, annotations and labels in one version. Does not check that the node exists, like the real server."""
        object_creation.check_body("Binding", binding)
        pod_strategy.validate_binding(binding, namespace=namespace, name=name)
        pod = self.get(POD, namespace, name)
        self._commit("MODIFIED", POD, pod_strategy.apply_binding(pod, binding, timestamp=format_rfc3339(self._now())))

    def evict(self, namespace: str, name: str, eviction: Object) -> None:
        """Add the disruption condition to the pod's status, and delete it. There are no disruption budgets here."""
        object_creation.check_body("Eviction", eviction, version="policy/v1")
        pod_strategy.validate_eviction(eviction, name=name)
        pod, options = self.get(POD, namespace, name), eviction.get("deleteOptions") or {}
        _check_delete_preconditions(POD, pod["metadata"], options.get("preconditions") or {})
        self._commit("MODIFIED", POD, pod_strategy.add_disruption_condition(pod, timestamp=format_rfc3339(self._now())))
        self.delete(POD, namespace, name, options)

    def delete(self, kind: ResourceKind, namespace: str, name: str, options: Object) -> Object | None:
        """Delete the object or mark it as terminating. Returns it as it is now; None if the answer has only the name.

        No kubelet runs here: a bound pod with grace stays until it is deleted again with `gracePeriodSeconds` 0.
        """
        item = self.get(kind, namespace, name)
        _check_delete_preconditions(kind, item["metadata"], options.get("preconditions") or {})
        item = _add_propagation_finalizer(kind, item, options.get("propagationPolicy"))
        grace = pod_strategy.resolve_grace_seconds(item, options.get("gracePeriodSeconds")) if kind is POD else 0
        is_held = bool(item["metadata"].get("finalizers"))
        left = _read_grace_seconds(item["metadata"])
        if "deletionTimestamp" in item["metadata"] and (left or is_held) and left <= grace:
            return item  # already terminating, and this call does not end it sooner
        if kind is POD or is_held:
            item = self._commit("MODIFIED", kind, self._mark_terminating(item, grace))
            if grace or is_held:
                return item
        gone = self._commit("DELETED", kind, item)
        return gone if kind is POD else None

    def compact(self) -> None:
        """Forget all older versions: watches and pages of these get 410."""
        self._compacted = self.version
        self._log.clear()
        self._snapshots = {key: kept for key, kept in self._snapshots.items() if key[1] >= self._compacted}

    def _add_object(self, kind: ResourceKind, item: Object) -> Object:
        metadata = item["metadata"]
        if kind.build_key(metadata.get("namespace", ""), metadata["name"]) in self._objects[kind.plural]:
            raise errors.already_exists(kind, metadata["name"])
        return self._commit("ADDED", kind, item)

    def _mark_terminating(self, item: Object, grace: int) -> Object:
        metadata = item["metadata"]
        times = {
            "deletionTimestamp": format_rfc3339(self._now() + timedelta(seconds=grace)),
            "deletionGracePeriodSeconds": grace,
        }
        if "generation" in metadata and "deletionTimestamp" not in metadata:
            times["generation"] = metadata["generation"] + 1
        return {**item, "metadata": {**metadata, **times}}

    def _commit(self, change_type: ChangeType, kind: ResourceKind, item: Object) -> Object:
        if self._is_dry_run:
            return item
        version = self.version + 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
        key = kind.build_key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
        before = (
            self._objects[kind.plural].pop(key, None)
            if change_type == "DELETED"
            else self._objects[kind.plural].get(key)
        )
        if change_type != "DELETED":
            self._objects[kind.plural][key] = item
        self._log.append(StoreChange(version, change_type, kind, item, before))
        self._trim_log()
        for listener in self._listeners:
            listener()
        return item

    def _trim_log(self) -> None:
        if len(self._log) > self._log_length:
            dropped = (len(self._log) + 1) // 2  # half at a time: one by one would move the whole list each time
            self._compacted += dropped
            del self._log[:dropped]

    def _get_snapshot(self, kind: ResourceKind) -> ListSnapshot:
        known = self._snapshots.get((kind.plural, self.version))
        return known or ListSnapshot.from_objects(self.version, self._objects[kind.plural])

    def _retain_snapshot(self, kind: ResourceKind, snapshot: ListSnapshot) -> None:
        self._snapshots[kind.plural, snapshot.version] = snapshot
        while len(self._snapshots) > MAX_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]


def _check_identity(kind: ResourceKind, old: Object, new: Object) -> None:
    if new.get("name") != old["name"]:
        raise errors.bad_request(
            f"the name of the object ({new.get('name')}) does not match the name on the URL ({old['name']})"
        )
    if new.get("namespace") != old.get("namespace"):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if new.get("resourceVersion", old["resourceVersion"]) != old["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise errors.conflict(kind.plural, old["name"], why, group=kind.group)
    if new.get("uid", old["uid"]) != old["uid"]:
        why = f'Invalid value: "{new["uid"]}": field is immutable'
        raise errors.invalid(kind, old["name"], [("FieldValueInvalid", why, "metadata.uid")])


def _merge_metadata(old: Object, new: Object) -> Object:
    """Take over the metadata that a client may patch; empty fields are removed."""
    changeable = ("labels", "annotations", "finalizers", "ownerReferences")
    kept = {key: value for key, value in old.items() if key not in changeable}
    return kept | {key: new[key] for key in changeable if new.get(key)}


def _check_delete_preconditions(kind: ResourceKind, metadata: Object, wanted: Object) -> None:
    hints = {"uid": "deleted and then recreated", "resourceVersion": "modified"}
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) and wanted[field] != metadata[field]:
            why = (
                f"the {word} in the precondition ({wanted[field]}) does not match the {word} in record "
                f"({metadata[field]}). The object might have been {hints[field]}"
            )
            raise errors.conflict(kind.name, metadata["name"], why, group=kind.group)


def _add_propagation_finalizer(kind: ResourceKind, item: Object, policy: str | None) -> Object:
    """Add the finalizer that makes a controller handle a workload's pods first; other kinds get none."""
    finalizer = PROPAGATION_FINALIZERS.get(policy or BACKGROUND_POLICY)
    if finalizer is None:
        supported = ", ".join(f'"{each}"' for each in ("Foreground", BACKGROUND_POLICY, "Orphan", "nil"))
        raise errors.invalid_option("DeleteOptions", "propagationPolicy", f'"{policy}"', supported)
    known = item["metadata"].get("finalizers") or []
    if not finalizer or kind not in WORKLOAD_KINDS or finalizer in known:
        return item
    return {**item, "metadata": {**item["metadata"], "finalizers": [*known, finalizer]}}


def _read_grace_seconds(metadata: Object) -> int:
    return int(metadata.get("deletionGracePeriodSeconds") or 0)


def format_rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
