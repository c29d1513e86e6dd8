"""The pods of this node, as the back ends see them: which limits they should have, and which pod a process belongs to.

How much a container may use comes from its pod's record as the fence admitted it or, if only its limits changed since, as the
watch shows it (`limit_changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from vrampack.agent.admission.desired_limits import find_only_requester, list_desired_limits
from vrampack.agent.admission.limit_changes import is_limit_change_accepted
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.limits import cgroups
from vrampack.agent.limits.cgroups import CgroupOwner, CgroupTree, FindOwner
from vrampack.agent.limits.node_context import DiscoveredCards
from vrampack.agent.limits.workload import DesiredLimit, ResolvedContainer, Unresolved
from vrampack.cards.grants import read_grant, read_pod_limits
from vrampack.cards.records import Record, RecordError


class WatchedPods(Protocol):
    """The pods of this node as the watch shows them, see `cluster/pod_cache.py`."""

    def find_pod(self, uid: str) -> LocalPod | None: ...
    def list_pods(self) -> Iterable[LocalPod]: ...


class PodWorkload:
    """`Workload` of a node in Kubernetes."""

    def __init__(
        self,
        watched_pods: WatchedPods,
        node_cards: DiscoveredCards,
        cgroup_tree: CgroupTree,
        *,
        find_owner: FindOwner = cgroups.find_process_owner,
    ) -> None:
        self._watched_pods = watched_pods
        self._node_cards = node_cards
        self._cgroups = cgroup_tree
        self._find_owner = find_owner
        self._admitted: dict[str, LocalPod] = {}
        """By uid, as the fence admitted them: the watch may not show them yet, or still show what was corrected."""
        self._limit_changes: dict[str, tuple[LocalPod, LocalPod, bool]] = {}
        """By uid: the pod as watched, as admitted, and whether the watched one replaces the admitted one."""
        self._resolved: dict[CgroupOwner, tuple[LocalPod, LocalPod | None, ResolvedContainer | Unresolved]] = {}
        """Answers of `resolve_container`, with the pods that they were computed from."""

    def record_admitted(self, pod: LocalPod) -> None:
        """The fence admitted this version of the pod."""
        self._admitted[pod.pod.uid] = pod

    def forget_pod(self, uid: str) -> None:
        self._admitted.pop(uid, None)
        self._limit_changes.pop(uid, None)
        for owner in [owner for owner in self._resolved if owner.pod_uid == uid]:
            del self._resolved[owner]

    def find_pod(self, uid: str) -> LocalPod | None:
        """The pod as it was admitted, or as the watch shows it if only its limits differ."""
        admitted, watched = self._admitted.get(uid), self._watched_pods.find_pod(uid)
        if admitted is None or watched is None:
            return admitted or watched
        known = self._limit_changes.get(uid)
        if known is None or known[0] is not watched or known[1] is not admitted:
            is_accepted = is_limit_change_accepted(watched, admitted, self._node_cards.cards)
            known = self._limit_changes[uid] = watched, admitted, is_accepted
        return watched if known[2] else admitted

    def list_desired(self) -> Iterator[DesiredLimit]:
        """The limits of pods that were admitted, or that have run since before this agent started."""
        uids = {pod.pod.uid for pod in self._watched_pods.list_pods() if pod.started_containers} | self._admitted.keys()
        pods = (pod for uid in sorted(uids) if (pod := self.find_pod(uid)) is not None)
        return list_desired_limits(pods, self._cgroups)

    def get_limits_mib(self, pod_uid: str, container: str) -> Mapping[str, int] | None:
        """Empty for a container of a previous plugin; without a name, those of all containers of the pod together."""
        pod = self.find_pod(pod_uid)
        if pod is None:
            return None
        try:
            if not container and pod.pod.request is not None:
                return read_pod_limits(pod.annotations, pod.pod.request)
            return read_grant(pod.annotations, container).limits_mib
        except RecordError:
            # A pod that a previous plugin set up, with that plugin's kind of record, runs on as it did. Of a record of ours a
            # container that is not in it has no limit to be given: it may have been named by the tenant.
            record = pod.pod.record
            return {} if isinstance(record, Record) and not record.is_ours else None

    def get_container_name(self, pod_uid: str, container_id: str) -> str | None:
        """None while the pod's status does not say it."""
        pod = self._watched_pods.find_pod(pod_uid)
        ids = {} if pod is None else {found.rpartition("/")[2]: name for name, found in pod.container_ids.items()}
        return ids.get(container_id)

    def resolve_container(self, owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        """The container and its limits, computed again when its pod has changed.

        Only containers that may use a card get the library, so a process of an unknown pod is not a host process.
        """
        pod = self.find_pod(owner.pod_uid) if owner is not None else None
        if pod is None or owner is None:
            return Unresolved.UNKNOWN_OWNER
        watched = self._watched_pods.find_pod(owner.pod_uid)
        known = self._resolved.get(owner)
        if known is None or known[0] is not pod or known[1] is not watched:
            known = self._resolved[owner] = pod, watched, self._resolve(owner, pod)
        return known[2]

    def resolve_leftover(self, _owner: CgroupOwner | None) -> ResolvedContainer | Unresolved:
        """It runs on without a limit."""
        return Unresolved.UNLIMITED

    def find_process_owner(self, pid: int) -> CgroupOwner | None:
        return self._find_owner(pid)

    def is_gone(self, pod_uid: str) -> bool:
        watched = self._watched_pods.find_pod(pod_uid)
        is_over = pod_uid not in self._admitted and (watched is None or not watched.is_active)
        return is_over and self._cgroups.find_pod_cgroup(pod_uid) is None

    def _resolve(self, owner: CgroupOwner, pod: LocalPod) -> ResolvedContainer | Unresolved:
        record = pod.pod.record
        if not isinstance(record, Record):
            return Unresolved.UNKNOWN_OWNER
        if not record.is_ours:
            return Unresolved.UNLIMITED  # what a previous plugin set up runs on as it did
        name = self.get_container_name(owner.pod_uid, owner.container_id) or find_only_requester(pod)
        if name is None:
            return Unresolved.NAME_PENDING
        return ResolvedContainer(name, self.get_limits_mib(owner.pod_uid, name) or {})
