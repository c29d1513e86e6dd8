"""Checks at the start whether the container runtime of this node reads our CDI folder.

    the probe is a spec that is a link to /proc/self/projid_map
    containerd --reads its folder--> opens /proc/<pid of containerd>/projid_map   <--inotify-- this agent

inotify does not say who read a file, and several programs read a CDI folder: dockerd beside a containerd that has CDI
switched off, NVIDIA's tools. The link leads each reader to its own file below /proc/self, and only the runtime's file is
watched. No other program reads that file. It is not a spec: the runtime logs that it cannot parse it, and goes on.

It needs the node's own /proc, since each mount of /proc has its own files. Without it the result is undecided.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vrampack.agent.cdi.read_watch import IN_OPEN, ReadWatch
from vrampack.agent.cdi.spec_folder import PROBE_NAME, SpecFolder, wake_readers

log = logging.getLogger(__name__)

PROBED_FILE: Final = "projid_map"
"""A file of each process: readable by everyone, one line, and unused outside user namespaces."""
QUIET_SECONDS = 0.2
"""The folder must be quiet for this long before the probe is written, so that the read that is seen is of the probe."""
PROBE_SECONDS = 2.0
"""A runtime reads a new spec within milliseconds; with hundreds of others in the folder, within a tenth of a second."""
OLD_PROCESS_HINT: Final = "restart it once, it may hang or be older than the folder; if that changes nothing, CDI is switched off in its configuration"
SWITCH_HINT: Final = "set enable_cdi = true in the section of its CRI plugin, and restart it"
PROCESS_NAMES: Final = {"containerd": "containerd", "cri-o": "crio"}
"""The process name of each runtime, by the name that it reports to kubelet."""
FIRST_CDI_VERSION: Final = {"containerd": (1, 7, 2), "cri-o": (1, 28, 0)}
"""The first version that accepts kubelet's CDI devices. containerd 1.7.0 reads the folder and ignores them (containerd#8519)."""
ON_BY_DEFAULT: Final = {"containerd": (2, 0, 0), "cri-o": (1, 28, 0)}


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """`status.nodeInfo.containerRuntimeVersion` of the node."""

    name: str
    version: tuple[int, int, int] = (0, 0, 0)

    @property
    def can_have_cdi(self) -> bool:
        """Whether this version supports kubelet's CDI devices at all."""
        return self.name in FIRST_CDI_VERSION and self.version >= FIRST_CDI_VERSION[self.name]

    @property
    def has_cdi_by_default(self) -> bool:
        """If false, and its configuration does not enable CDI, it silently creates containers without the devices."""
        return self.name in ON_BY_DEFAULT and self.version >= ON_BY_DEFAULT[self.name]

    def __str__(self) -> str:
        return f"{self.name} {self.version[0]}.{self.version[1]}" if self.name else "an unknown runtime"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the self-check found out."""

    is_read: bool | None
    """Whether the runtime reads the folder; None: undecided."""
    reason: str
    is_answer: bool = True
    """Whether it is about the runtime at all: there was one, and it could be watched."""
    is_fault: bool = False
    """Whether no container could get a card even if the runtime read specs: the folder is not writable, NVIDIA's specs are missing."""


def parse_runtime(text: str) -> ContainerRuntime:
    """Parse `containerd://2.1.3-k3s1`; text of another form gives an unknown runtime."""
    found = re.match(r"(?P<name>[^:]+)://v?(?P<version>[0-9]+\.[0-9]+(\.[0-9]+)?)", text)
    if found is None:
        return ContainerRuntime("")
    major, minor, patch = (*map(int, found["version"].split(".")), 0)[:3]
    return ContainerRuntime(found["name"], (major, minor, patch))


def _describe_first(runtime: ContainerRuntime) -> str:
    first = FIRST_CDI_VERSION.get(runtime.name)
    return f"; the first that does is {'.'.join(map(str, first))}" if first is not None else ""


class RuntimeProbe:
    """Probes the runtime, which may be upgraded between two calls."""

    def __init__(
        self,
        folder: SpecFolder,
        watch: ReadWatch,
        node_proc: Path,
        folders: Sequence[Path],
        *,
        is_in_pod: Callable[[int], bool],
    ) -> None:
        """`node_proc`: the /proc of the node, not this container's. `folders`: all folders that the runtime may read.

        `is_in_pod` says whether a process of the node, given its pid, is in a pod.
        """
        self._is_in_pod = is_in_pod
        self._folder = folder
        self._watch = watch
        self._proc = node_proc
        self._folders = folders

    async def probe_runtime(self, runtime: ContainerRuntime) -> ProbeResult:
        """Probe once. Raises `CdiError` when no spec can be written at all."""
        if not runtime.can_have_cdi:
            return ProbeResult(is_read=False, reason=f"{runtime} takes no CDI devices{_describe_first(runtime)}")
        if not (self._proc / "self").exists():
            text = f"{self._proc} is not the node's /proc: which program reads a spec cannot be seen"
            return ProbeResult(is_read=None, reason=text, is_answer=False)
        pids = list(self._list_runtime_processes(PROCESS_NAMES[runtime.name]))
        if not pids:
            text = f"no process {PROCESS_NAMES[runtime.name]} is seen on this node"
            return ProbeResult(is_read=None, reason=text, is_answer=False)
        try:
            return await self._probe_processes(runtime, pids)
        except OSError as error:
            return ProbeResult(is_read=None, reason=f"reads of specs cannot be watched: {error}", is_answer=False)
        finally:
            self._folder.remove_spec(PROBE_NAME)

    async def _probe_processes(self, runtime: ContainerRuntime, pids: list[int]) -> ProbeResult:
        """Several processes may have the name (Docker's, or in nested containers). Only what all of them do is certain."""
        paths = [self._proc / str(pid) / PROBED_FILE for pid in pids]
        with ExitStack() as stack:
            wake_readers(self._folders)
            for path in paths:  # an open file keeps its inode, to which the watch belongs
                stack.callback(os.close, os.open(path, os.O_PATH))
            reads = [self._watch.watch_file(path, IN_OPEN) for path in paths]
            for read in reads:
                stack.callback(self._watch.forget_file, read)
            for read in reads:
                if await read.wait_for_read(QUIET_SECONDS / len(reads)):
                    text = f"another program reads {PROBED_FILE} of {runtime}"
                    return ProbeResult(is_read=None, reason=text, is_answer=False)
            # The link is resolved by the reader: in the runtime's mount namespace /proc is in its usual place.
            self._folder.write_probe(Path("/proc/self") / PROBED_FILE)
            outcomes = [await read.wait_for_read(PROBE_SECONDS) for read in reads[:1]]
            outcomes += [read.is_read for read in reads[1:]]
        if all(outcomes):
            return ProbeResult(is_read=True, reason=f"{runtime} reads specs")
        if any(outcomes):
            return ProbeResult(is_read=None, reason=f"only some of the {len(pids)} processes of {runtime} read specs")
        if runtime.has_cdi_by_default:
            return ProbeResult(is_read=None, reason=f"{runtime} does not read specs: {OLD_PROCESS_HINT}")
        return ProbeResult(is_read=False, reason=f"{runtime} does not read specs: {SWITCH_HINT}")

    def _list_runtime_processes(self, name: str) -> Iterator[int]:
        """The runtime's processes that are in no pod: a pod may run a runtime of its own."""
        try:
            folders = list(self._proc.iterdir())
        except OSError as error:  # no descriptor is left, for example
            log.warning("processes not listed path=%s error=%s", self._proc, error)
            return
        for folder in folders:
            if folder.name.isdecimal():
                with suppress(OSError):
                    is_it = (folder / "comm").read_bytes().strip() == name.encode()
                    if is_it and not self._is_in_pod(int(folder.name)):
                        yield int(folder.name)
