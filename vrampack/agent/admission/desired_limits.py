"""The limits that the pods of this node ought to have, per pod or per container.

On cgroup v2 a pod has one limit for all its containers together; if it has several, the hook adds a limit for each of them.
On v1 only containers can be told apart, by their PID namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.limits.cgroups import CGROUP_V2, CgroupTree
from vrampack.agent.limits.workload import DesiredLimit
from vrampack.cards.grants import read_grant, read_pod_limits
from vrampack.cards.records import Record, RecordError
from vrampack.cards.request import PodRequest


def list_desired_limits(pods: Iterable[LocalPod], cgroups: CgroupTree) -> Iterator[DesiredLimit]:
    """The limits in the order of `pods`. A pod whose record cannot be read keeps the limit it has."""
    for pod in pods:
        record, request = pod.pod.record, pod.pod.request
        if request is None or not isinstance(record, Record) or not record.is_ours:
            continue
        try:
            yield from _list_pod_limits(pod, request, cgroups)
        except RecordError:
            continue


def find_only_requester(pod: LocalPod) -> str | None:
    """The name of the only container, init containers included, that asks for cards; None when several do."""
    names = [each.name for each in pod.pod.request.containers] if pod.pod.request is not None else []
    return names[0] if len(names) == 1 else None


def _list_pod_limits(pod: LocalPod, request: PodRequest, cgroups: CgroupTree) -> Iterator[DesiredLimit]:
    uid, only = pod.pod.uid, find_only_requester(pod)
    is_unified = cgroups.version == CGROUP_V2
    if is_unified:
        yield DesiredLimit(
            uid,
            read_pod_limits(pod.annotations, request),
            partial(cgroups.find_pod_cgroup, uid),
            reported_container=only or "",
        )
    if is_unified and only is not None:
        return
    for container in request.containers:
        container_id = pod.container_ids.get(container.name)
        limits = read_grant(pod.annotations, container.name).limits_mib
        if container_id is not None:
            folder = partial(cgroups.find_container_cgroup, uid, container_id.rpartition("/")[2])
            yield DesiredLimit(uid, limits, folder, container.name, container.name, is_added_by_hook=is_unified)
