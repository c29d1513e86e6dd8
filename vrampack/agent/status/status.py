"""What the page `/limits` says (`schema.py` has its words): who holds what of the cards, process by process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from vrampack.agent.cluster.local_pod import LocalPod
from vrampack.agent.limits.accounting import ProcessUsage, UsageAccounting, UsageTotals
from vrampack.agent.limits.kmod.proc_client import ModuleState
from vrampack.agent.status.schema import LimitedContainer, LimitedProcess, LimitsStatus, ModuleStatus
from vrampack.cards.node import CardFacts

_MIB = 1 << 20


class LimitsSource(Protocol):
    """Who holds limits here: `enforcement.py`, or the agent of a host without Kubernetes."""

    @property
    def mode(self) -> str: ...
    @property
    def accounting(self) -> UsageAccounting | None: ...
    @property
    def module_state(self) -> ModuleState | None: ...
    def get_limits_mib(self, pod_uid: str, container: str, /) -> Mapping[str, int] | None: ...


def build_limits_status(
    node: str, limits: LimitsSource, *, driver_version: str, cards: Iterable[CardFacts], pods: Iterable[LocalPod]
) -> LimitsStatus:
    """As it is now."""
    books = limits.accounting
    if books is None:
        return LimitsStatus(node=node, enforcement=limits.mode, driver_version=driver_version)
    return LimitsStatus(
        node=node,
        enforcement=limits.mode,
        driver_version=driver_version,
        connected=books.process_count,
        containers=tuple(_list_containers(books, limits, _index_by_uuid(cards), {pod.pod.uid: pod for pod in pods})),
        module=_build_module_status(limits.module_state),
    )


def _build_module_status(state: ModuleState | None) -> ModuleStatus | None:
    if state is None:
        return None
    return ModuleStatus(state.version, state.is_attached, state.driver_version, state.layout, state.uvm, state.files)


def _list_containers(
    accounting: UsageAccounting, limits: LimitsSource, indices: Mapping[str, int], pods: Mapping[str, LocalPod]
) -> list[LimitedContainer]:
    processes: dict[tuple[str, str, str], list[ProcessUsage]] = {}
    for each in accounting.list_processes():
        processes.setdefault((each.pod_uid, each.container, each.uuid), []).append(each)
    found = []
    for key, tally in accounting.list_usage_totals().items():
        uid, name, uuid = key
        limit_mib = (limits.get_limits_mib(uid, name) or {}).get(uuid)
        limit_bytes = None if limit_mib is None else limit_mib * _MIB
        place = _name_container(pods.get(uid), uid, name), (uuid, indices.get(uuid), limit_bytes)
        found.append(_build_container(place, tally, processes.get(key, [])))
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
