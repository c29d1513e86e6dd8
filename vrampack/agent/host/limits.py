"""Answers the hook on a host without Kubernetes: the limit is what the container's own environment asks for.

This module does not handle pods. It refuses a container whose annotations or cgroup show that it belongs to a pod: then this
agent was started on a Kubernetes node by mistake, and a pod's environment is not trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vrampack.agent.host.containers import HostContainer, HostContainers, make_host_container
from vrampack.agent.host.environment import WEIGHT, compute_limits_mib, parse_environment
from vrampack.agent.inventory.known_cards import CardPresence, explain_absence
from vrampack.agent.limits.cgroups import CgroupTree, parse_owner
from vrampack.agent.limits.contract import BackEnd, LimitTarget, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HOST_VERSION, HookQuestion
from vrampack.cards.env_injection import DISABLE_VARIABLE
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)


class HostLimits:
    """Applies and releases the limits of one host's containers."""

    def __init__(
        self,
        cgroups: CgroupTree,
        containers: HostContainers,
        back_end: BackEnd,
        *,
        cards: Callable[[], Sequence[CardFacts]],
        find_presence: Callable[[str], CardPresence],
    ) -> None:
        """`find_presence`: what the driver says now about the card with this uuid."""
        self._cgroups = cgroups
        self._containers = containers
        self._back_end = back_end
        self._cards = cards
        self._find_presence = find_presence
        self._has_logged_weight = False

    async def restore_limits(self) -> None:
        """Apply the limits of containers that are running already."""
        for container in self._containers.list_containers():
            try:
                await self._back_end.apply(Scope.CONTAINER, self._make_target(container), container.limits)
            except LimitError as error:
                log.error("limit not applied container=%s reason=%s", container, error)  # noqa: TRY400 - no traceback
                continue
            log.info("limit restored container=%s mib=%s", container, _format_limits(container))

    async def apply_limit(self, question: HookQuestion) -> str:
        """Apply the limit. Returns the folder to mount. Raises `LimitError` for a container that may not start."""
        _check_is_host_container(question)
        request = parse_environment(question.env)
        if request is None:
            log.warning("container unlimited container=%s reason=%s", question.id, DISABLE_VARIABLE)
            return ""
        if request.weight is not None and not self._has_logged_weight:
            self._has_logged_weight = True
            log.warning("variable ignored name=%s reason=no_compute_sharing", WEIGHT)
        await self.release_ended_containers()
        cards = self._cards()
        limits = compute_limits_mib(request, cards)
        for uuid in limits:
            if problem := explain_absence(uuid, self._find_presence(uuid)):
                raise LimitError(problem)
        container = make_host_container(question.id, question.hierarchy, question.cgroup, limits, weight=request.weight)
        target = self._make_target(container, question.pid)
        self._containers.add_container(container, cards)
        try:
            applied = await self._back_end.apply(Scope.CONTAINER, target, container.limits)
        except BaseException:
            self._containers.remove_container(container)
            raise
        log.info(
            "limit applied container=%s state=%s held_by=%s mib=%s",
            container,
            applied.state,
            applied.held_by,
            _format_limits(container),
        )
        return self._back_end.hook_mount

    async def release_ended_containers(self) -> None:
        """Release what ended containers held."""
        for container in self._containers.remove_ended():
            try:
                await self._back_end.release(LimitTarget(container.key, "", container.id))
            except LimitError as error:
                log.warning("limit not released container=%s reason=%s", container, error)
                continue
            log.info("limit released container=%s mib=%s", container, _format_limits(container))

    def _make_target(self, each: HostContainer, pid: int = 0) -> LimitTarget:
        folder = self._cgroups.get_folder(each.hierarchy, each.cgroup)
        return LimitTarget(each.key, "", each.id, cgroup=folder, pid=pid, weight=each.weight)


def _check_is_host_container(question: HookQuestion) -> None:
    if parse_owner(question.cgroup) is not None or any(
        (question.namespace, question.pod, question.uid, question.container)
    ):
        raise LimitError(
            "it belongs to a pod, but the agent of this host runs without Kubernetes (standalone): "
            "on a Kubernetes node the DaemonSet runs the agent"
        )
    if question.v != HOST_VERSION:
        raise LimitError(
            "this vrampack-hook is older than the agent and does not send the environment: install the new one"
        )


def _format_limits(each: HostContainer) -> str:
    return ",".join(f"{uuid}:{mib}" for uuid, mib in sorted(each.limits.items()))
