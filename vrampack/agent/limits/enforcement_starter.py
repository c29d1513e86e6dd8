"""Starts the back end of this node and the server that answers the hook, and retries until both run.

What is missing may appear later (a module, a hook, a folder), and what fails may work later (a full disk, a file in the
socket's place), without a restart of the agent. A part that already runs is not started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from vrampack.agent.limits.detection import RUNTIME_SPECS, NodeCapabilities
from vrampack.agent.limits.enforcement import Enforcement
from vrampack.agent.limits.errors import ImpossibleBackEndError
from vrampack.agent.limits.hook_server import HookServer
from vrampack.agent.limits.node_context import NodeContext
from vrampack.backoff import Backoff

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=10.0)
"""Each attempt reads the node's CDI files again."""


class EnforcementStarter:
    """Starts the enforcement of one agent. `run` ends when everything runs."""

    def __init__(
        self,
        enforcement: Enforcement,
        hook_server: HookServer,
        context: NodeContext,
        *,
        extend_capabilities: Callable[[NodeCapabilities], NodeCapabilities],
        on_attempted: Callable[[str], None],
    ) -> None:
        """`on_attempted` gets the obstacle after each attempt; an empty text after the last one."""
        self._enforcement = enforcement
        self._hook_server = hook_server
        self._context = context
        self._extend_capabilities = extend_capabilities
        self._on_attempted = on_attempted
        self._failures = 0

    async def start_enforcement(self) -> None:
        """One attempt."""
        problem = ""
        try:
            await self._start()
        except (ImpossibleBackEndError, OSError) as error:
            problem = f"enforcement: {error}"
        self._on_attempted(problem)

    async def run(self) -> None:
        """Retry until it has succeeded."""
        while not self._is_complete():
            self._failures += 1
            await asyncio.sleep(BACKOFF.draw_seconds(self._failures))
            await self.start_enforcement()

    async def _start(self) -> None:
        if self._enforcement.has_started:
            await self._enforcement.start_leftovers()
        else:
            capabilities = self._context.detect_capabilities(runtime_specs=RUNTIME_SPECS)
            await self._enforcement.start(self._enforcement.select(self._extend_capabilities(capabilities)))
        if self._must_hear_hook() and not self._hook_server.is_listening:
            await self._hook_server.start()

    def _must_hear_hook(self) -> bool:
        """Whether the hook must be answered: also one that nothing needs, as silence would stop every container."""
        return self._enforcement.needs_hook or self._context.paths.hook_socket.parent.is_dir()

    def _is_complete(self) -> bool:
        return self._enforcement.is_complete and (self._hook_server.is_listening or not self._must_hear_hook())
