"""Of which pods and containers of this node the kernel module ought to have an instance, and with which limits.

On cgroup v2 a pod has one, for all its containers together; those of a pod with several are the hook's to add. On v1 only a
container can be told from others, by its PID namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.limits.cgroups import CGROUP_V2, CgroupTree
from vrampack.agent.limits.kmod.backend import DesiredBudget
from vrampack.cards.grants import read_grant, read_pod_limits
from vrampack.cards.records import Record, RecordError
from vrampack.cards.request import PodRequest


def list_desired_budgets(pods: Iterable[LocalPod], cgroups: CgroupTree) -> Iterator[DesiredBudget]:
    """In the order of `pods`. One whose record cannot be read keeps what it has."""
    for pod in pods:
        record, ask = pod.pod.record, pod.pod.request
        if ask is None or not isinstance(record, Record) or not record.is_ours:
            continue
        try:
            yield from _list_pod_budgets(pod, ask, cgroups)
        except RecordError:
            continue


def find_only_requester(pod: LocalPod) -> str | None:
    """The one container that asks, init containers too: while the status names nobody it can be no other with a card."""
    names = [each.name for each in pod.pod.request.containers] if pod.pod.request is not None else []
    return names[0] if len(names) == 1 else None


def _list_pod_budgets(pod: LocalPod, ask: PodRequest, cgroups: CgroupTree) -> Iterator[DesiredBudget]:
    uid, only = pod.pod.uid, find_only_requester(pod)
    is_unified = cgroups.version == CGROUP_V2
    if is_unified:
        yield DesiredBudget(
            uid,
            read_pod_limits(pod.annotations, ask),
            partial(cgroups.find_pod_cgroup, uid),
            reported_container=only or "",
        )
    if is_unified and only is not None:
        return
    for each in ask.containers:
        found = pod.container_ids.get(each.name)
        limits = read_grant(pod.annotations, each.name).limits_mib
        if found is not None:
            folder = partial(cgroups.find_container_cgroup, uid, found.rpartition("/")[2])
            yield DesiredBudget(uid, limits, folder, each.name, each.name, is_added_by_hook=is_unified)
