"""How containers of this node get their cards: `cdi` where the runtime can, else `exact`. Decided at the start, and shown.

    setting exact --------------------------------------------------------> exact
    setting cdi  ---------------------------------------------------------> cdi, with a problem where it cannot work
    setting auto --the runtime reads our probe, and every card has edits--> cdi
                 --a fault or no answer, on a node whose mode was cdi-----> cdi, with a problem, and checked again
                 --anything else, or undecided----------------------------> exact, and checked again
    later, if cdi worked and made a start fail
                 --checks fail, several in FAILING_SECONDS or longer------> cdi, with a problem while it cannot work
                 --no answer: the runtime is away-------------------------> as before, and checked again

A problem keeps all cards from new pods, and a pod that reaches kubelet then fails for good. A runtime that stalls or restarts
would end pods in that way, so `cdi` that worked gets time: until then a start that cannot get its card is refused and tried again.

The mode applies to containers for which kubelet allocates devices from now on. A container that has its devices keeps the mode
in which it got them: kubelet repeats that answer for as long as its pod lives.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Literal

from vrampack.agent.cdi.card_edits import has_limit_hook
from vrampack.agent.cdi.edits_source import EditsSource
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.runtime_probe import ContainerRuntime, ProbeResult, RuntimeProbe
from vrampack.agent.cdi.spec_publisher import SpecPublisher
from vrampack.agent.nvml.driver import Gpu

log = logging.getLogger(__name__)

MIN_KUBELET = (1, 29)
"""The first kubelet version that passes on a device plugin's CDI devices by default."""

FAILING_CHECKS = 3
FAILING_SECONDS = 30.0
"""Where `cdi` worked, so many checks fail for so long before it counts as broken. The extender evicts refused pods 5 s later."""
ChosenMode = Literal["cdi", "exact"]


class InjectionChoice:
    """The mode of new containers, and why it is that one."""

    def __init__(
        self,
        setting: Literal["auto", "cdi", "exact"],
        probe: RuntimeProbe,
        edits: EditsSource,
        publisher: SpecPublisher,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        self._failed_checks = 0
        self._doubt = ""
        """The reason that was logged."""
        self._setting = setting
        self._probe = probe
        self._edits = edits
        self._publisher = publisher
        self._decided = asyncio.Event()
        self.mode: ChosenMode = "exact"
        self.reason = ""
        self.problem = ""
        """Why no container can get a card in the chosen mode; empty when all is well."""
        self.is_settled = False
        """False when a later check may find more: the runtime is upgraded or restarted, the GPU Operator writes its specs."""
        self.has_limit_hooks = False
        """Whether the edits of every card have NVIDIA's hook for limits."""

    async def wait_until_decided(self) -> None:
        await self._decided.wait()

    def restore_mode(self, mode: ChosenMode) -> None:
        """Restore an earlier agent's choice. A fault, such as NVIDIA's specs coming late after a reboot, does not change it."""
        self.mode = mode

    def doubt_mode(self) -> None:
        """A container did not get its card: check again."""
        self.is_settled = self._setting == "exact"

    async def choose_mode(self, runtime: ContainerRuntime, kubelet_version: str, gpus: Iterable[Gpu]) -> bool:
        """Decide, or decide again. Returns whether anything changed."""
        before = self.mode, self.reason, self.problem
        began_at = self._clock()
        self._publisher.runtime = runtime
        if self._setting == "exact":
            self.mode, self.reason, self.is_settled = "exact", "set", True
        else:
            result = await self._check_node(runtime, kubelet_version, gpus)
            if not self._is_premature(result, began_at):
                self._apply_result(result)
        self._decided.set()
        return before != (self.mode, self.reason, self.problem)

    async def _check_node(self, runtime: ContainerRuntime, kubelet_version: str, gpus: Iterable[Gpu]) -> ProbeResult:
        if not _is_kubelet_new_enough(kubelet_version):
            return ProbeResult(
                is_read=False,
                reason=f"kubelet {kubelet_version} is older than 1.29"
                if kubelet_version
                else "the version of kubelet is not known",
            )
        try:
            result = await self._probe.probe_runtime(runtime)
            self._publisher.has_been_read |= result.is_read is True
            if result.is_read is False:
                return result
            found = [await self._edits.find_edits(gpu) for gpu in gpus]
            self.has_limit_hooks = all(has_limit_hook(each.edits) for each in found)
        except CdiError as error:
            return ProbeResult(is_read=None, reason=str(error), is_fault=True)
        return result

    def _is_premature(self, result: ProbeResult, began_at: float) -> bool:
        """Whether `cdi` has worked, and this result does not show yet that it no longer does."""
        has_worked = self._decided.is_set() and self.mode == "cdi" and not self.problem
        if result.is_read or not has_worked:
            self._failing_since, self._doubt = None, ""
            return False
        if not result.is_answer:
            self._failing_since = None  # what failed before may be gone: the runtime restarts
        elif self._failing_since is None:
            self._failing_since, self._failed_checks = began_at, 1
        else:
            self._failed_checks += 1
        if result.reason != self._doubt:
            self._doubt = result.reason
            log.warning("injection in doubt mode=cdi reason=%r", result.reason)
        since = self._failing_since
        return since is None or self._failed_checks < FAILING_CHECKS or self._clock() - since < FAILING_SECONDS

    def _apply_result(self, result: ProbeResult) -> None:
        self.reason, self.is_settled = result.reason, result.is_read is True
        self._publisher.has_been_read &= self.is_settled or result.is_fault
        # Limits may be in force by what specs carry: an agent that began with `cdi` ends with it.
        is_known_cdi = self.mode == "cdi" and (result.is_fault or not result.is_answer or self._decided.is_set())
        stays = self._setting == "cdi" or is_known_cdi
        self.mode = "cdi" if stays or result.is_read else "exact"
        is_fine = self.mode == "exact" or result.is_read
        self.problem = "" if is_fine else f"injection: cdi: {result.reason}"


def _is_kubelet_new_enough(version: str) -> bool:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= MIN_KUBELET
