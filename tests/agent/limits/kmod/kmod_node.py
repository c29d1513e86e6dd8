"""A node before a simulated module: folders for cgroups, pods of one or two containers with a card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.agent.limits.limit_node import FakeCards, FakeWorkload, LimitedDriver
from tests.support.scripted_driver import scripted_gpu
from tests.support.simulated_kmod import SimulatedKmod, write_proc
from vrampack.agent.limits.cgroups import CgroupTree
from vrampack.agent.limits.contract import LimitTarget, Scope
from vrampack.agent.limits.kmod.backend import KmodBackEnd
from vrampack.agent.limits.node_context import NodeContext, NodePaths
from vrampack.agent.limits.workload import DesiredLimit
from vrampack.agent.settings import KmodSettings, OveruseSettings

DRIVER = "580.95.05"
UID = "1d3a9a10-0000-4000-8000-000000000001"
OTHER = "1d3a9a10-0000-4000-8000-000000000002"
IDS = {"main": "1a" * 32, "side": "2b" * 32}


class KmodNode(FakeWorkload):
    """Its cgroups are folders. A pod of one or two containers with a card."""

    def __init__(self, folder: Path, *, version: int = 2) -> None:
        self.folder = folder
        self.version = version
        self.mount = folder / "cgroup"
        self.pods = self.mount / ("" if version == 2 else "memory") / "kubepods"
        self.pods.mkdir(parents=True)
        if version == 2:
            (self.mount / "cgroup.controllers").touch()
        self.proc = write_proc(folder)
        self.module = SimulatedKmod(DRIVER)
        self.gpus = {"GPU-a": scripted_gpu(0), "GPU-b": scripted_gpu(1)}
        self.cgroups = CgroupTree(self.mount)
        super().__init__(self.cgroups)
        self.wanted: dict[str, DesiredLimit] = {}
        self.gone: set[str] = set()
        self.back_end = self.restarted()

    def list_desired(self) -> Iterable[DesiredLimit]:
        return self.wanted.values()

    def is_gone(self, pod_uid: str) -> bool:
        return pod_uid in self.gone

    def restarted(self, settings: KmodSettings | None = None) -> KmodBackEnd:
        """The back end of another agent."""
        paths = NodePaths(cgroup_mount=self.mount, proc=self.proc)
        context = NodeContext(
            paths,
            self.cgroups,
            LimitedDriver(),
            FakeCards(gpus=self.gpus),
            self,
            OveruseSettings(),
            settings or KmodSettings(),
            lambda: 0.0,
        )
        self.back_end = KmodBackEnd(self.module.open_nodes, context)
        return self.back_end

    def pod(self, *containers: str, uid: str = UID, mib: int = 4301) -> Path:
        """A running pod; each of its containers may use `mib` of card a."""
        folder = self.pods / f"pod{uid}"
        for at, name in enumerate(containers):
            (folder / IDS[name]).mkdir(parents=True, exist_ok=True)
            (folder / IDS[name] / "cgroup.procs").write_text(f"{50 + at}\n")
        for wanted in self.wants(uid, containers, mib):
            self.wanted[wanted.budget_name] = wanted
        return folder

    def wants(self, uid: str, containers: tuple[str, ...], mib: int) -> Iterator[DesiredLimit]:
        if self.version == 2:
            shown = containers[0] if len(containers) == 1 else ""
            yield DesiredLimit(
                uid,
                {"GPU-a": mib * len(containers)},
                partial(self.cgroups.find_pod_cgroup, uid),
                reported_container=shown,
            )
        if self.version == 1 or len(containers) > 1:
            for name in containers:
                folder = partial(self.cgroups.find_container_cgroup, uid, IDS[name])
                yield DesiredLimit(uid, {"GPU-a": mib}, folder, name, name, is_added_by_hook=self.version == 2)

    async def starts(self, container: str = "", *, uid: str = UID, mib: int = 4301, pid: int = 0) -> str:
        """Ask as kubelet does for the pod, or as the hook does for the container; return whether it is in force or deferred."""
        cgroup = self.cgroups.find_container_cgroup(uid, IDS[container]) if container else None
        scope = Scope.CONTAINER if container else Scope.POD
        identity = LimitTarget(uid, "ml", "a", container, cgroup, pid)
        return (await self.back_end.apply(scope, identity, {"GPU-a": mib})).state

    def identity_of(self, name: str) -> str:
        return self.module.instances[name].identity
