"""Answers the hook in Kubernetes: puts the limit of the pod's record in force on the container's own cgroup.

The pod is known by the cgroup that kubelet made for it; what the annotations say must agree. How much the container may
use comes from the pod's record as the agent knows it, never from the container's environment, sent or not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from vrampack.agent.limits.cgroups import CgroupTree, parse_owner
from vrampack.agent.limits.contract import LimitApplier, LimitTarget, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hook_server import HookQuestion

log = logging.getLogger(__name__)


class PodLimits:
    """Applies limits when the hook asks. A container for which `get_limits_mib` returns None does not start."""

    def __init__(
        self,
        cgroups: CgroupTree,
        enforcement: LimitApplier,
        get_limits_mib: Callable[[str, str], Mapping[str, int] | None],
        *,
        on_allowed: Callable[[LimitTarget, str], None] = lambda _target, _container_id: None,
    ) -> None:
        """`on_allowed` is called for each container that may start, with its id."""
        self._cgroups = cgroups
        self._enforcement = enforcement
        self._get_limits_mib = get_limits_mib
        self._on_allowed = on_allowed

    async def apply_limit(self, question: HookQuestion) -> str:
        """Apply the limit. Returns "", as `Allocate` handled all mounts. Raises `LimitError` if the container may not start."""
        target = self._make_target(question)
        limits = self._get_limits_mib(target.pod_uid, target.container)
        if limits is None:
            raise LimitError(f"{target}: no record gives this container a limit")
        if not limits:
            self._on_allowed(target, question.id)
            log.info("container unlimited pod=%s/%s container=%s", target.namespace, target.name, target.container)
            return ""
        applied = await self._enforcement.apply(Scope.CONTAINER, target, limits)
        self._on_allowed(target, question.id)
        log.info(
            "limit applied pod=%s/%s container=%s state=%s held_by=%s mib=%s",
            target.namespace,
            target.name,
            target.container,
            applied.state,
            applied.held_by,
            ",".join(f"{uuid}:{mib}" for uuid, mib in sorted(limits.items())),
        )
        return ""

    def _make_target(self, question: HookQuestion) -> LimitTarget:
        """Identify the pod by the cgroup, which only kubelet names; a user may have written the annotations."""
        found = parse_owner(question.cgroup)
        if found is None:
            raise LimitError(
                f"{question.hierarchy}:{question.cgroup} does not belong to a pod: a node's agent does not serve "
                "containers outside Kubernetes"
            )
        if question.uid not in {"", found.pod_uid}:
            raise LimitError(f"the annotations name pod {question.uid}, but the cgroup belongs to pod {found.pod_uid}")
        if found.container_id not in {"", question.id}:
            raise LimitError(
                f"the runtime names container {question.id}, but the cgroup belongs to {found.container_id}"
            )
        if not question.container:
            raise LimitError(f"pod {found.pod_uid}: the runtime's annotations do not name the container")
        folder = self._cgroups.get_folder(question.hierarchy, question.cgroup)
        return LimitTarget(found.pod_uid, question.namespace, question.pod, question.container, folder, question.pid)
