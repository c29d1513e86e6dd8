"""`kmod.unknown: deny`: containers that the module was not told of get no memory of the cards.

The module decides who is unknown: below these cgroups, without a limit of its own or of a nearer cgroup, and without
CAP_SYS_ADMIN on the node. See docs/decisions/0116-deny-exempts-administrators.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from vrampack.agent.limits.cgroups import CGROUP_V2, CgroupTree
from vrampack.agent.limits.errors import LimitError
from vrampack.agent.limits.kmod.budget_owner import read_cgroup_id
from vrampack.agent.limits.kmod.proc_client import CgroupId, KmodBudget, KmodClient
from vrampack.agent.settings import KmodSettings

PREFIX = "unknown-"
"""The name prefix of the instances made here, before the cgroup's id. People made the other `deny` instances, which stay."""


class UnknownContainers:
    """Makes the module treat them as the setting says, also after a restart of the module or the agent."""

    def __init__(self, client: KmodClient, cgroups: CgroupTree, settings: KmodSettings) -> None:
        self._client = client
        self._cgroups = cgroups
        self._settings = settings

    def reconcile(self, listed: Iterable[KmodBudget], minors: Collection[int]) -> None:
        """`minors`: of all cards; does nothing before they are known. Raises `LimitError` if the setting cannot be enforced."""
        denied = {each.cgroup: each for each in listed if each.is_deny and not each.is_removed}
        if not minors:
            return
        for cgroup in self._find_cgroup_ids():
            found = denied.pop(cgroup.number, None)
            if found is None or not found.cards.keys() >= set(minors):
                self._client.deny_unknown(found.name if found else f"{PREFIX}{cgroup.number}", cgroup, minors)
        for left in denied.values():
            if left.name.startswith(PREFIX):
                self._client.remove_budget(left.name)

    def _find_cgroup_ids(self) -> list[CgroupId]:
        if self._settings.unknown == "pass":
            return []
        if self._cgroups.version != CGROUP_V2:
            raise LimitError("kmod.unknown: deny needs cgroup v2, which this node does not have")
        folders = self._find_folders()
        if not folders:
            raise LimitError(
                "kmod.unknown: deny is set, but no cgroup of kubelet's is visible: name it in kmod.unknown_cgroups"
            )
        return [read_cgroup_id(folder) for folder in folders]

    def _find_folders(self) -> Collection[Path]:
        configured = self._settings.unknown_cgroups
        if configured:
            return [self._cgroups.get_folder("unified", path) for path in configured]
        return self._cgroups.find_pods_cgroups()
