"""What the hook is answered on a host without Kubernetes: the limit that the container's own environment asks for.

Nothing of a pod is judged here. Where annotations or cgroup say that the container is a pod's it is refused: somebody
runs this agent on a node by mistake, and a pod's environment is not believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from vrampack.agent.limits.cgroups import Cgroups, owner
from vrampack.agent.limits.contract import BackEnd, Identity, Scope
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.hooks import NAMES_NONE, Question
from vrampack.agent.limits.tenants import Tenant, Tenants, tenant
from vrampack.agent.limits.variables import WEIGHT, limits_of, read_wish
from vrampack.cards.environment import DISABLE_VARIABLE
from vrampack.cards.node import CardFacts

log = logging.getLogger(__name__)


class HostLimits:
    """`mount` is what the back end needs in a container: a folder, or nothing."""

    def __init__(
        self,
        cgroups: Cgroups,
        tenants: Tenants,
        back_end: BackEnd,
        *,
        cards: Callable[[], Sequence[CardFacts]],
        mount: str = "",
    ) -> None:
        self._cgroups = cgroups
        self._tenants = tenants
        self._back_end = back_end
        self._cards = cards
        self._mount = mount
        self._has_said_weight = False

    async def take_up(self) -> None:
        """Hold those who run already to what they were given."""
        for each in self._tenants.all():
            try:
                await self._back_end.apply(Scope.CONTAINER, self._identity(each), each.limits)
            except LimitError as error:
                log.error("not held container=%s why=%s", each, error)  # noqa: TRY400 - said, not traced
                continue
            log.info("goes on container=%s mib=%s", each, _shown(each))

    async def put_in_force(self, question: Question) -> str:
        """The folder to mount. Raises `LimitError` for who may not start."""
        _check_host(question)
        wish = read_wish(question.env)
        if wish is None:
            log.warning("no limit container=%s why=%s", question.id, DISABLE_VARIABLE)
            return ""
        if wish.weight is not None and not self._has_said_weight:
            self._has_said_weight = True
            log.warning("%s is accepted and changes nothing: this back end shares no compute", WEIGHT)
        await self.release_ended()
        cards = self._cards()
        limits = limits_of(wish, cards)
        new = tenant(question.id, question.hierarchy, question.cgroup, limits, weight=wish.weight)
        identity = self._identity(new, question.pid)
        self._tenants.enter(new, cards)
        try:
            applied = await self._back_end.apply(Scope.CONTAINER, identity, new.limits)
        except BaseException:
            self._tenants.withdraw(new)
            raise
        log.info("limit container=%s standing=%s by=%s mib=%s", new, applied.standing, applied.by, _shown(new))
        return self._mount

    async def release_ended(self) -> None:
        """Take back what containers held that are gone."""
        for gone in self._tenants.sweep():
            try:
                await self._back_end.release(Identity(gone.key, "", "", gone.id))
            except LimitError as error:
                log.warning("not released container=%s why=%s", gone, error)
                continue
            log.info("released container=%s mib=%s", gone, _shown(gone))

    def _identity(self, each: Tenant, pid: int = 0) -> Identity:
        folder = self._cgroups.at(each.hierarchy, each.cgroup)
        return Identity(each.key, "", "", each.id, folder, pid, each.weight)


def _check_host(question: Question) -> None:
    if owner(question.cgroup) is not None or any((question.namespace, question.pod, question.uid, question.container)):
        raise LimitError(
            "it is a pod's, and the agent of this host was started without Kubernetes (standalone): "
            "on a node the DaemonSet runs the agent"
        )
    if question.v != NAMES_NONE:
        raise LimitError(
            "this vrampack-hook is older than the agent and does not say the environment: install the new one"
        )


def _shown(each: Tenant) -> str:
    return ",".join(f"{uuid}:{mib}" for uuid, mib in sorted(each.limits.items()))
