"""`kmod`: the kernel module as a back end of the agent.

    PreStart  --apply(pod)-------> add UID cgroup=..            v2; the sum of the pod's containers
    the hook  --apply(container)-> add UID.NAME cgroup=..       v2; for pods of several, the nearest cgroup wins
                                   add UID.NAME pidns=..        v1
    reconcile, every few seconds: desired limits <-> what inst_ctl shows
                             missing (module loaded again, agent restarted) -> add; another limit -> memsize
                             no longer desired, and no file open -> remove
                             kmod.unknown: deny -> deny NAME cgroup=.., for kubelet's cgroups

The agent remembers nothing but figures for people: the module has the limits in force, and the desired ones are in the pods'
records or the host's files. So after a restart of either side, a reconcile is like any other.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from vrampack.agent.limits.accounting import ProcessUsage, UsageAccounting, UsageTotals
from vrampack.agent.limits.cgroups import CGROUP_V2
from vrampack.agent.limits.contract import (
    Applied,
    AppliedState,
    BackEnd,
    ContainerUsage,
    LimitTarget,
    ModuleState,
    Scope,
    Traits,
)
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.budget_owner import find_pid_namespace, read_cgroup_id
from vrampack.agent.limits.kmod.errors import ModuleError
from vrampack.agent.limits.kmod.preflight import find_module_problem
from vrampack.agent.limits.kmod.proc_client import BudgetOwner, KmodBudget, KmodClient
from vrampack.agent.limits.kmod.unknown_containers import UnknownContainers
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.limits.workload import DesiredLimit, make_budget_name

log = logging.getLogger(__name__)

SURVIVES = "restarts and upgrades of the agent; after a reload of the module the agent tells it every limit again"
DEFAULT_BUDGETS, MAX_BUDGETS = 16, 25
"""Instances of one card: the module's default, and its maximum. How many a pod takes: `cards.request.count_instances`."""
Result = TypeVar("Result")
_OWNER_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""A pod's uid or the key of a host's container; people gave other names, which are left alone."""


@dataclass(frozen=True, slots=True)
class ModuleSnapshot:
    """What the last reconcile saw."""

    module_state: ModuleState | None = None
    budgets: tuple[tuple[KmodBudget, DesiredLimit], ...] = ()
    instances: Mapping[int, int] = field(default_factory=dict)
    """How many a card has for pods, by minor."""


class KmodBackEnd(BackEnd):
    """Limits the driver's control file, below every library, so static programs are limited too."""

    traits = Traits(Scope.CONTAINER, "from the first process on, by the kernel module", SURVIVES)

    def __init__(self, client: KmodClient, context: NodeContext, *, has_hook: bool = False) -> None:
        """`has_hook`: whether the runtime is configured to call the createRuntime hook."""
        self._has_hook = has_hook
        self._client = client
        self._context = context
        self._cgroups = context.cgroups
        self._workload = context.workload
        self._unknown = UnknownContainers(client, context.cgroups, context.kmod)
        self._lock = asyncio.Lock()
        self._minor_by_uuid: Mapping[str, int] = {}
        """The minors when the last call began, as its work is done in a thread."""
        self._snapshot = ModuleSnapshot()
        self._failures: dict[str, str] = {}
        """The failures that were logged, by budget name."""

    @property
    def accounting(self) -> UsageAccounting:
        return self

    @property
    def module_state(self) -> ModuleState | None:
        """As the last `reconcile` saw it."""
        return self._snapshot.module_state

    @property
    def card_instances(self) -> Mapping[str, int]:
        """As the last `reconcile` saw the module."""
        known = self._snapshot.instances
        return {uuid: known.get(minor, MAX_BUDGETS) for uuid, minor in self._context.get_minors().items()}

    @property
    def limits_containers_apart(self) -> bool:
        return self._has_hook or not self._is_unified

    async def reconcile(self) -> str:
        """Compare the module with the desired limits, and correct what differs."""
        return await self._run_alone(self._reconcile)

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        if scope is Scope.POD and not self._is_unified:
            return Applied(AppliedState.DEFERRED, "in force at container start, by the createRuntime hook")
        if not limits:
            return Applied(AppliedState.DEFERRED, "it has no limit")
        self._has_hook |= scope is Scope.CONTAINER
        return await self._run_alone(partial(self._apply, scope, target, limits))

    async def release(self, target: LimitTarget) -> None:
        """No new file is bound to its budget; files that are open elsewhere stay limited."""
        name = make_budget_name(target.pod_uid, target.container)
        await self._run_alone(lambda _desired: self._remove_budget(name))

    async def _run_alone(self, work: Callable[[Mapping[str, DesiredLimit]], Result]) -> Result:
        """Run it in a thread, with the desired limits. When the caller is cancelled, the next call still waits for the thread."""

        async def run() -> Result:
            async with self._lock:
                return await asyncio.to_thread(work, self._read_inputs())

        return await asyncio.shield(asyncio.create_task(run()))

    async def measure_usage(self) -> tuple[ContainerUsage, ...]:
        return tuple(
            ContainerUsage(uid, container, uuid, totals.used_bytes)
            for (uid, container, uuid), totals in self.list_usage_totals().items()
        )

    def list_usage_totals(self) -> Mapping[tuple[str, str, str], UsageTotals]:
        """Totals by pod uid, container and card. Containers without an instance of their own count together, without a name."""
        found: dict[tuple[str, str, str], UsageTotals] = {}
        for budget, desired in self._snapshot.budgets:
            for minor, card in sorted(budget.cards.items()):
                if desired.reported_container or card.peak_bytes or card.refused:
                    key = desired.pod_uid, desired.reported_container, self._find_card_uuid(minor, desired)
                    found[key] = _add_totals(
                        found.get(key), UsageTotals(card.used_bytes, card.peak_bytes, card.refused)
                    )
        return found

    def count_processes(self) -> Mapping[tuple[str, str], int]:
        """The processes that hold memory, by pod uid and container name."""
        found: Counter[tuple[str, str]] = Counter()
        for budget, desired in self._snapshot.budgets:
            found[desired.pod_uid, desired.reported_container] += len({each.pid for each in budget.processes})
        return +found

    @property
    def process_count(self) -> int:
        return sum(self.count_processes().values())

    def list_processes(self) -> tuple[ProcessUsage, ...]:
        return tuple(
            ProcessUsage(
                each.pid,
                desired.pod_uid,
                "",
                desired.reported_container,
                self._find_card_uuid(each.minor, desired),
                each.used_bytes,
                0,
            )
            for budget, desired in self._snapshot.budgets
            for each in budget.processes
        )

    @property
    def _is_unified(self) -> bool:
        return self._cgroups.version == CGROUP_V2

    def _read_inputs(self) -> Mapping[str, DesiredLimit]:
        """Read what a worker thread must not read, because the agent may change it meanwhile."""
        self._minor_by_uuid = dict(self._context.get_minors())
        return {each.budget_name: each for each in self._workload.list_desired()}

    def _reserve_budgets(self) -> None:
        """Create folders for all cards, with as many instances as a card can have, unless an operator set another number."""
        minors = sorted({*self._minor_by_uuid.values()})
        if minors:
            self._client.add_cards(minors)
        for minor in minors:
            if self._client.read_max_budgets(minor) == DEFAULT_BUDGETS:
                self._client.set_max_budgets(minor, MAX_BUDGETS)

    def _count_instances(self) -> dict[int, int]:
        """How many of each card are for pods: those that people made count towards its maximum, too."""
        listed = [each for each in self._client.list_budgets() if not each.is_deny and not each.is_removed]
        made = [each for each in listed if not _OWNER_UID.fullmatch(each.name.partition(".")[0])]
        return {
            minor: max(0, self._client.read_max_budgets(minor) - sum(minor in each.cards for each in made))
            for minor in sorted({*self._minor_by_uuid.values()})
        }

    def _reconcile(self, desired: Mapping[str, DesiredLimit]) -> str:
        try:
            state = self._client.read_state()
            if state is None:
                self._snapshot = ModuleSnapshot()
                return find_module_problem(None, "")
            problem = find_module_problem(state, self._context.cards.driver_version)
            self._apply_desired(desired, may_add=not problem)
            instances = self._snapshot.instances if problem else self._count_instances()
            problem = problem or self._reconcile_unknown()
            before = {budget.name: desired for budget, desired in self._snapshot.budgets}
            self._snapshot = ModuleSnapshot(
                self._client.read_state(),
                tuple(
                    (each, _find_desired(each.name, desired, before))
                    for each in self._client.list_budgets()
                    if not each.is_deny
                ),
                instances,
            )
        except ModuleError as error:
            return str(error)
        return problem

    def _apply_desired(self, desired: Mapping[str, DesiredLimit], *, may_add: bool) -> None:
        listed = {each.name: each for each in self._client.list_budgets() if not each.is_removed and not each.is_deny}
        uids = {name.partition(".")[0] for name in listed}
        has_new_cards = not self._snapshot.instances.keys() >= {*self._minor_by_uuid.values()}
        if may_add and (has_new_cards or (desired and not listed)):
            self._reserve_budgets()
        for name, each in desired.items():
            if name in listed:
                self._attempt(name, partial(self._resize_budget, listed[name], each))
            elif may_add and not (each.is_added_by_hook and each.pod_uid in uids):
                self._attempt(name, partial(self._restore_budget, each))
        for name in listed.keys() - desired.keys():
            uid = name.partition(".")[0]
            if _OWNER_UID.fullmatch(uid) and not listed[name].files and self._workload.is_gone(uid):
                self._attempt(name, partial(self._remove_budget, name))

    def _reconcile_unknown(self) -> str:
        """Apply `kmod.unknown`. Returns why the setting cannot be applied; empty when it is."""
        try:
            self._unknown.reconcile(self._client.list_budgets(), {*self._minor_by_uuid.values()})
        except LimitError as error:
            return str(error)
        return ""

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        """Run the action; a failure is logged once and does not stop the others."""
        try:
            action()
        except LimitError as error:
            if self._failures.get(name) != str(error):
                log.error("budget not applied budget=%s reason=%s", name, error)  # noqa: TRY400 - no traceback
            self._failures[name] = str(error)
        else:
            self._failures.pop(name, None)

    def _resize_budget(self, listed: KmodBudget, desired: DesiredLimit) -> None:
        for minor, size_bytes in self._limit_bytes_by_minor(desired.pod_uid, desired.limits_mib).items():
            if minor in listed.cards and listed.cards[minor].limit_bytes != size_bytes:
                self._client.resize_budget(minor, listed.name, size_bytes)
                log.info("budget resized budget=%s card=%s bytes=%s", listed.name, minor, size_bytes)

    def _restore_budget(self, desired: DesiredLimit) -> None:
        """Add the budget of a running target that the module does not know."""
        folder = desired.find_cgroup()
        if folder is None or not desired.limits_mib:
            return
        self._client.add_budget(
            desired.budget_name,
            self._find_budget_owner(folder),
            self._limit_bytes_by_minor(desired.pod_uid, desired.limits_mib),
            weight=desired.weight,
        )
        log.info(
            "budget restored budget=%s mib=%s", desired.budget_name, ",".join(map(str, desired.limits_mib.values()))
        )

    def _apply(
        self, scope: Scope, target: LimitTarget, limits: Mapping[str, int], desired: Mapping[str, DesiredLimit]
    ) -> Applied:
        problem = find_module_problem(self._client.read_state(), self._context.cards.driver_version)
        if problem:
            raise ModuleError(problem)
        folder = target.cgroup or (self._cgroups.find_pod_cgroup(target.pod_uid) if scope is Scope.POD else None)
        if folder is None:
            raise LimitError(f"{target}: its cgroup is not there: has kubelet made one for each pod (cgroupsPerQOS)?")
        if scope is Scope.CONTAINER and self._is_held_as_pod(target, desired):
            return Applied(
                AppliedState.IN_FORCE, "the kernel module, for its pod: it is the only container with a card"
            )
        owner = self._find_budget_owner(folder, target.pid)
        self._client.add_budget(
            make_budget_name(target.pod_uid, target.container),
            owner,
            self._limit_bytes_by_minor(str(target), limits),
            weight=target.weight,
        )
        return Applied(AppliedState.IN_FORCE, "the kernel module")

    def _is_held_as_pod(self, target: LimitTarget, desired: Mapping[str, DesiredLimit]) -> bool:
        """Whether the pod's budget covers the container: a second instance would add nothing, and a card has few of them."""
        pod = desired.get(target.pod_uid)
        if pod is None or pod.container or pod.reported_container != target.container or not self._is_unified:
            return False
        folder = self._cgroups.find_pod_cgroup(target.pod_uid)
        if folder is None:
            return False
        number = read_cgroup_id(folder).number
        limits = self._limit_bytes_by_minor(pod.pod_uid, pod.limits_mib)
        return any(
            each.name == pod.pod_uid
            and each.cgroup == number
            and each.limit_bytes_by_minor == limits
            and not each.is_removed
            for each in self._client.list_budgets()
        )

    def _remove_budget(self, name: str) -> None:
        if any(each.name == name and not each.is_removed for each in self._client.list_budgets()):
            self._client.remove_budget(name)

    def _find_budget_owner(self, folder: Path, pid: int = 0) -> BudgetOwner:
        return read_cgroup_id(folder) if self._is_unified else find_pid_namespace(folder, pid, self._context.paths.proc)

    def _limit_bytes_by_minor(self, target: str, limits: Mapping[str, int]) -> dict[int, int]:
        """By minor."""
        found: dict[int, int] = {}
        for uuid, mib in limits.items():
            minor = self._minor_by_uuid.get(uuid)
            if minor is None:
                raise LimitError(f"{target}: the driver does not show card {uuid}")
            if minor in found:
                raise LimitError(
                    f"{target}: the module cannot tell MIG instances of one GPU apart: give the container only one of them"
                )
            found[minor] = mib << 20
        return found

    def _find_card_uuid(self, minor: int, desired: DesiredLimit) -> str:
        """The card's uuid; its minor if no such card is known."""
        meant = [
            uuid
            for uuid in (*desired.limits_mib, *sorted(self._minor_by_uuid))
            if self._minor_by_uuid.get(uuid) == minor
        ]
        return meant[0] if meant else str(minor)


def _add_totals(before: UsageTotals | None, more: UsageTotals) -> UsageTotals:
    if before is None:
        return more
    return UsageTotals(
        before.used_bytes + more.used_bytes, max(before.peak_bytes, more.peak_bytes), before.refused + more.refused
    )


def _find_desired(name: str, *known: Mapping[str, DesiredLimit]) -> DesiredLimit:
    """The limit of this name that is desired now, or was earlier: files may outlive their pod."""
    uid, _, container = name.partition(".")
    found = (each[name] for each in known if name in each)
    return next(found, DesiredLimit(uid, {}, lambda: None, container, container))
