"""The back end that enforces limits on this node, and what an earlier one left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from vrampack.agent.inventory.known_cards import explain_absence
from vrampack.agent.limits.accounting import UsageAccounting
from vrampack.agent.limits.back_end_row import BackEndRow
from vrampack.agent.limits.contract import (
    Applied,
    BackEnd,
    ContainerUsage,
    LimitTarget,
    ModuleState,
    OverLimit,
    Scope,
)
from vrampack.agent.limits.detection import NodeCapabilities
from vrampack.agent.limits.drm_nodes import list_drm_nodes
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.node_context import NodeContext
from vrampack.agent.limits.selection import AUTO, Selection, select_back_end

log = logging.getLogger(__name__)

RECONCILE_SECONDS = 5.0
"""Between two reconciles while no pod changes."""
DRAWING_ADVICE = (
    "a container that has them can allocate past its limit: give limited containers none, as injection cdi does"
)


class Enforcement:
    """The node's back end. Until `start` has succeeded there is none, and no container with a limit may start."""

    def __init__(self, mode: str, context: NodeContext, *, rows: Sequence[BackEndRow]) -> None:
        """`mode` is the setting `enforcement`."""
        self._setting = mode
        self._context = context
        self._rows = rows
        self._selection: Selection | None = None
        self._back_end: BackEnd | None = None
        self._running: list[BackEnd] = []
        """The selected back end, and those that only answer containers of an earlier agent."""
        self._leftover_rows: list[BackEndRow] = []
        """Back ends that have not started yet although containers of an earlier agent may ask them."""
        self._started = asyncio.Event()
        self._pods_changed = asyncio.Event()

    def select(self, capabilities: NodeCapabilities) -> Selection:
        """Select a back end; may be repeated. Raises `ImpossibleBackEndError` when the one set by name cannot work here."""
        return select_back_end(self._setting, capabilities, self._context, self._rows)

    async def start(self, selection: Selection) -> BackEnd:
        """Start the selected back end. Raises `OSError` when it cannot start."""
        self._selection = selection
        back_end = selection.row.build(selection.capabilities, self._context)
        await self._start_back_end(back_end)
        self._leftover_rows = [row for row in self._rows if row is not selection.row]
        await self.start_leftovers()
        self._back_end = back_end
        self._started.set()
        log.info(
            "back end selected mode=%s in_force=%r reason=%s", self.mode, back_end.traits.in_force, selection.reason
        )
        if selection.row.is_blind_to_drawing:
            self._warn_of_drawing()
        return back_end

    async def start_leftovers(self) -> None:
        """Start the back ends for containers of an earlier agent that do not run yet."""
        self._leftover_rows = [row for row in self._leftover_rows if not await self._try_leftover(row)]

    @property
    def is_complete(self) -> bool:
        """Whether a back end runs, and everything that answers containers of an earlier agent."""
        return self._back_end is not None and not self._leftover_rows

    async def run(self, on_problem: Callable[[str], None]) -> None:
        """Reconcile, and report why no new limit can be enforced now; until cancelled."""
        await self._started.wait()
        while True:
            self._pods_changed.clear()
            on_problem(await self.reconcile_or_explain())
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_SECONDS):
                    await self._pods_changed.wait()

    async def reconcile(self) -> str:
        """Make the node match what is desired now. Returns why no new limit can be enforced; empty when all is well."""
        return "; ".join(filter(None, [await back_end.reconcile() for back_end in self._running]))

    async def reconcile_or_explain(self) -> str:
        """Like `reconcile`; an internal error is a problem like any other, and may be gone at the next reconcile."""
        try:
            return await self.reconcile()
        except Exception as error:
            log.exception("limits not reconciled")
            return f"the agent failed: {error!r}; see its log"

    def notify_pods_changed(self) -> None:
        """Some pod of this node changed: reconcile soon."""
        self._pods_changed.set()

    def stop(self) -> None:
        """Release what the next agent of this node needs."""
        for back_end in self._running:
            back_end.stop()
        self._running.clear()

    @property
    def has_started(self) -> bool:
        """Whether a back end runs."""
        return self._back_end is not None

    @property
    def mode(self) -> str:
        """The mode for the node's label and the metric; empty until a back end is selected."""
        return self._selection.row.mode if self._selection is not None else ""

    @property
    def is_unenforced(self) -> bool:
        """Whether limits are not held here although the settings leave the choice to the agent."""
        selection = self._selection
        return self._setting == AUTO and selection is not None and not selection.row.is_enforcing

    @property
    def accounting(self) -> UsageAccounting | None:
        """What containers hold, if the back end counts it."""
        return self._back_end.accounting if self._back_end is not None else None

    @property
    def module_state(self) -> ModuleState | None:
        """The kernel module's state, if limits depend on it."""
        return self._back_end.module_state if self._back_end is not None else None

    @property
    def needs_hook(self) -> bool:
        """Whether limits are put in force only when the createRuntime hook asks."""
        return self._back_end is not None and self._back_end.needs_hook

    @property
    def needs_toolkit(self) -> bool:
        """Whether limits are put in force only by the hook that NVIDIA's spec of a card names."""
        return self._back_end is not None and self._back_end.needs_toolkit

    @property
    def card_instances(self) -> Mapping[str, int]:
        """How many limits the back end can hold on a card, by uuid; without the cards on which it can hold any number."""
        return self._back_end.card_instances if self._back_end is not None else {}

    @property
    def limits_containers_apart(self) -> bool:
        """Whether each of several containers of a pod takes an instance of its own."""
        return self._back_end is not None and self._back_end.limits_containers_apart

    def list_mounts(self) -> Mapping[str, str]:
        """What kubelet mounts into every container: path on the node by path in the container."""
        return self._back_end.list_mounts() if self._back_end is not None else {}

    async def apply(self, scope: Scope, target: LimitTarget, limits: Mapping[str, int]) -> Applied:
        """Hold `target` to these MiB per card uuid. Raises `LimitError`, also for a card that the driver does not list."""
        if self._back_end is None:
            raise LimitError("no back end on this node can enforce its limit; see the agent's log")
        for uuid in sorted(limits):
            if problem := explain_absence(uuid, self._context.cards.find_presence(uuid)):
                raise LimitError(f"{target}: {problem}")
        return await self._back_end.apply(scope, target, limits)

    def forget_pod(self, pod_uid: str) -> None:
        """The pod, or the container of a host, is gone."""
        for back_end in self._running:
            back_end.forget_pod(pod_uid)

    async def measure_usage(self) -> tuple[ContainerUsage, ...] | None:
        """What containers use now; None if nothing is measured. Raises `DriverError`."""
        return await self._back_end.measure_usage() if self._back_end is not None else None

    async def list_over_limit(self) -> tuple[OverLimit, ...]:
        """The containers above their limits, if limits are only watched. Raises `DriverError`."""
        return await self._back_end.list_over_limit() if self._back_end is not None else ()

    def _warn_of_drawing(self) -> None:
        nodes = ",".join(list_drm_nodes(self._context.paths.modules))
        if nodes:
            log.warning("drawing not counted mode=%s nodes=%s advice=%r", self.mode, nodes, DRAWING_ADVICE)

    async def _start_back_end(self, back_end: BackEnd) -> None:
        try:
            await back_end.start()
        except BaseException:
            back_end.stop()
            raise
        self._running.append(back_end)

    async def _try_leftover(self, row: BackEndRow) -> bool:
        """Start the leftover back end of a row. Returns whether it runs, or is not needed."""
        try:
            back_end = row.build_for_leftovers(self._context)
            if back_end is not None:
                await self._start_back_end(back_end)
        except OSError as error:
            log.warning("leftover back end not started mode=%s error=%s", row.mode, error)
            return False
        return True
