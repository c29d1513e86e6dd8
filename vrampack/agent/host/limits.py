"""What the hook is answered on a host without Kubernetes: the limit that the container's own environment asks for.

Nothing of a pod is judged here. Where annotations or cgroup say that the container is a pod's it is refused: somebody
runs this agent on a node by mistake, and a pod's environment is not believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vrampack.agent.host.containers import HostContainer, HostContainers, make_host_container
from vrampack.agent.host.environment import WEIGHT, compute_limits_mib, parse_environment
from vrampack.agent.limits.cgroups import CgroupTree, parse_owner
from vrampack.agent.limits.contract import BackEnd, LimitTarget, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HOST_VERSION, HookQuestion
from vrampack.cards.env_injection import DISABLE_VARIABLE
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)


class HostLimits:
    """`mount` is what the back end needs in a container: a folder, or nothing."""

    def __init__(
        self,
        cgroups: CgroupTree,
        containers: HostContainers,
        back_end: BackEnd,
        *,
        cards: Callable[[], Sequence[CardFacts]],
        mount: str = "",
    ) -> None:
        self._cgroups = cgroups
        self._containers = containers
        self._back_end = back_end
        self._cards = cards
        self._mount = mount
        self._has_logged_weight = False

    async def restore_limits(self) -> None:
        """Hold those who run already to what they were given."""
        for each in self._containers.list_containers():
            try:
                await self._back_end.apply(Scope.CONTAINER, self._make_target(each), each.limits)
            except LimitError as error:
                log.error("limit not applied container=%s reason=%s", each, error)  # noqa: TRY400 - said, not traced
                continue
            log.info("limit restored container=%s mib=%s", each, _format_limits(each))

    async def apply_limit(self, question: HookQuestion) -> str:
        """The folder to mount. Raises `LimitError` for who may not start."""
        _check_is_host_container(question)
        wish = parse_environment(question.env)
        if wish is None:
            log.warning("container unlimited container=%s reason=%s", question.id, DISABLE_VARIABLE)
            return ""
        if wish.weight is not None and not self._has_logged_weight:
            self._has_logged_weight = True
            log.warning("variable ignored name=%s reason=no_compute_sharing", WEIGHT)
        await self.release_ended_containers()
        cards = self._cards()
        limits = compute_limits_mib(wish, cards)
        new = make_host_container(question.id, question.hierarchy, question.cgroup, limits, weight=wish.weight)
        identity = self._make_target(new, question.pid)
        self._containers.add_container(new, cards)
        try:
            applied = await self._back_end.apply(Scope.CONTAINER, identity, new.limits)
        except BaseException:
            self._containers.remove_container(new)
            raise
        log.info(
            "limit applied container=%s state=%s held_by=%s mib=%s",
            new,
            applied.state,
            applied.held_by,
            _format_limits(new),
        )
        return self._mount

    async def release_ended_containers(self) -> None:
        """Take back what containers held that are gone."""
        for gone in self._containers.remove_ended():
            try:
                await self._back_end.release(LimitTarget(gone.key, "", "", gone.id))
            except LimitError as error:
                log.warning("limit not released container=%s reason=%s", gone, error)
                continue
            log.info("limit released container=%s mib=%s", gone, _format_limits(gone))

    def _make_target(self, each: HostContainer, pid: int = 0) -> LimitTarget:
        folder = self._cgroups.get_folder(each.hierarchy, each.cgroup)
        return LimitTarget(each.key, "", "", each.id, folder, pid, each.weight)


def _check_is_host_container(question: HookQuestion) -> None:
    if parse_owner(question.cgroup) is not None or any(
        (question.namespace, question.pod, question.uid, question.container)
    ):
        raise LimitError(
            "it is a pod's, and the agent of this host was started without Kubernetes (standalone): "
            "on a node the DaemonSet runs the agent"
        )
    if question.v != HOST_VERSION:
        raise LimitError(
            "this vrampack-hook is older than the agent and does not say the environment: install the new one"
        )


def _format_limits(each: HostContainer) -> str:
    return ",".join(f"{uuid}:{mib}" for uuid, mib in sorted(each.limits.items()))
