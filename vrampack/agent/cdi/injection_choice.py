"""How containers of this node get their cards: `cdi` where the runtime can, else `exact`. Decided at the start, and shown.

    setting exact --------------------------------------------------------> exact
    setting cdi  ---------------------------------------------------------> cdi, with a problem where it cannot work
    setting auto --the runtime reads our probe, and every card has edits--> cdi
                 --anything else, or undecided----------------------------> exact, and looked at again

The mode is that of containers which kubelet allocates devices for from now on. One that has its devices keeps the mode that
it got them in: kubelet repeats that answer for as long as its pod lives.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import Literal

from vrampack.agent.cdi.card_edits import has_limit_hook
from vrampack.agent.cdi.edits_source import EditsSource
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.runtime_probe import ContainerRuntime, ProbeResult, RuntimeProbe
from vrampack.agent.cdi.spec_publisher import SpecPublisher
from vrampack.agent.nvml.driver import Gpu

log = logging.getLogger(__name__)

MIN_KUBELET = (1, 29)
"""The first in which a device plugin's CDI devices count by default."""

ChosenMode = Literal["cdi", "exact"]


class InjectionChoice:
    """The mode of new containers, and why it is that one."""

    def __init__(
        self,
        setting: Literal["auto", "cdi", "exact"],
        probe: RuntimeProbe,
        edits: EditsSource,
        publisher: SpecPublisher,
    ) -> None:
        self._setting = setting
        self._probe = probe
        self._edits = edits
        self._publisher = publisher
        self._decided = asyncio.Event()
        self.mode: ChosenMode = "exact"
        self.reason = ""
        self.problem = ""
        """Why no container can get a card in the mode that was set; empty when all is well."""
        self.is_settled = False
        """False where another look may find more: the runtime is upgraded or restarted, the GPU Operator writes its specs."""
        self.has_limit_hooks = False
        """Whether the edits of every card have NVIDIA's hook for limits."""

    async def wait_until_decided(self) -> None:
        await self._decided.wait()

    async def choose_mode(self, runtime: ContainerRuntime, kubelet_version: str, gpus: Iterable[Gpu]) -> bool:
        """Decide, or decide again. Returns whether anything is different now."""
        before = self.mode, self.reason, self.problem
        self._publisher.runtime = runtime
        if self._setting == "exact":
            self.reason, self.is_settled = "set", True
        else:
            result = await self._check_node(runtime, kubelet_version, gpus)
            self._apply_result(result, runtime)
        self._decided.set()
        return before != (self.mode, self.reason, self.problem)

    async def _check_node(self, runtime: ContainerRuntime, kubelet_version: str, gpus: Iterable[Gpu]) -> ProbeResult:
        if not _is_kubelet_new_enough(kubelet_version):
            return ProbeResult(
                is_read=False, reason=f"kubelet {kubelet_version or 'of an unknown version'} is older than 1.29"
            )
        try:
            result = await self._probe.probe_runtime(runtime)
            found = [await self._edits.find_edits(gpu) for gpu in gpus]
            self.has_limit_hooks = all(has_limit_hook(each.edits) for each in found)
        except CdiError as error:
            return ProbeResult(is_read=None, reason=str(error), is_fault=True)
        self._publisher.has_been_read = self._publisher.has_been_read or result.is_read is True
        return result

    def _apply_result(self, result: ProbeResult, runtime: ContainerRuntime) -> None:
        self.reason, self.is_settled = result.reason, result.is_read is True
        self.mode = "cdi" if self._setting == "cdi" or result.is_read else "exact"
        is_hopeful = result.is_read is None and runtime.has_cdi_by_default and not result.is_fault
        is_fine = self._setting == "auto" or result.is_read or is_hopeful
        self.problem = "" if is_fine else f"injection: cdi: {result.reason}"


def _is_kubelet_new_enough(version: str) -> bool:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= MIN_KUBELET
