"""Builds the document at `/limits` (`schema.py` has its fields): who holds how much of each card, process by process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vrampack.agent.admission.unguarded_starts import UnguardedContainer
from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.limits.accounting import ProcessUsage, UsageAccounting, UsageTotals
from vrampack.agent.limits.contract import ModuleState
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.workload import Workload
from vrampack.agent.status.schema import (
    LimitedContainer,
    LimitedProcess,
    LimitsStatus,
    ModuleStatus,
    UnguardedContainerStatus,
)
from vrampack.cards.node import CardFacts
from vrampack.cards.units import MIB


def build_limits_status(  # noqa: PLR0913 - what the page shows, each named
    node: str,
    enforcement: Enforcement,
    workload: Workload,
    *,
    driver_version: str,
    cards: Iterable[CardFacts],
    pods: Iterable[LocalPod] = (),
    unguarded: Iterable[UnguardedContainer] = (),
) -> LimitsStatus:
    """The document as of now."""
    accounting, mode = enforcement.accounting, enforcement.mode
    rows = tuple(
        UnguardedContainerStatus(each.pod.pod.namespace, each.pod.pod.name, each.pod.pod.uid, each.container)
        for each in unguarded
    )
    if accounting is None:
        return LimitsStatus(node=node, enforcement=mode, driver_version=driver_version, unguarded=rows)
    pods_by_uid = {pod.pod.uid: pod for pod in pods}
    return LimitsStatus(
        node=node,
        enforcement=mode,
        driver_version=driver_version,
        connected=accounting.process_count,
        containers=tuple(_list_containers(accounting, workload, _index_by_uuid(cards), pods_by_uid)),
        module=_build_module_status(enforcement.module_state),
        unguarded=rows,
    )


def _build_module_status(state: ModuleState | None) -> ModuleStatus | None:
    if state is None:
        return None
    return ModuleStatus(state.version, state.is_attached, state.driver_version, state.layout, state.uvm, state.files)


def _list_containers(
    accounting: UsageAccounting, workload: Workload, indices: Mapping[str, int], pods: Mapping[str, LocalPod]
) -> list[LimitedContainer]:
    processes: dict[tuple[str, str, str], list[ProcessUsage]] = {}
    for each in accounting.list_processes():
        processes.setdefault((each.pod_uid, each.container, each.uuid), []).append(each)
    found = []
    for key, totals in accounting.list_usage_totals().items():
        uid, name, uuid = key
        limit_mib = (workload.get_limits_mib(uid, name) or {}).get(uuid)
        limit_bytes = None if limit_mib is None else limit_mib * MIB
        place = _name_container(pods.get(uid), uid, name), (uuid, indices.get(uuid), limit_bytes)
        found.append(_build_container(place, totals, processes.get(key, [])))
    return sorted(found, key=lambda each: (each.namespace, each.pod, each.uid, each.container, each.uuid))


def _name_container(pod: LocalPod | None, uid: str, name: str) -> tuple[str, str, str, str]:
    return (pod.pod.namespace, pod.pod.name, uid, name) if pod is not None else ("", "", uid, name)


def _build_container(
    place: tuple[tuple[str, str, str, str], tuple[str, int | None, int | None]],
    totals: UsageTotals,
    processes: Iterable[ProcessUsage],
) -> LimitedContainer:
    of, (uuid, gpu, limit_bytes) = place
    rows = tuple(LimitedProcess(each.pid, each.held_bytes, each.refused) for each in processes)
    return LimitedContainer(*of, uuid, gpu, limit_bytes, totals.used_bytes, totals.peak_bytes, totals.refused, rows)


def _index_by_uuid(cards: Iterable[CardFacts]) -> dict[str, int]:
    return {card.uuid or "": card.index for card in cards}
