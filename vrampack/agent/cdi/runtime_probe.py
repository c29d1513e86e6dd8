"""Does the container runtime of this node read our folder? The self-check of the start.

    the probe is a spec that is a link to /proc/self/projid_map
    containerd --reads its folder--> opens /proc/<pid of containerd>/projid_map   <--inotify-- this agent

inotify does not say who read a file, and several programs read a CDI folder: dockerd beside a containerd that has CDI
switched off, NVIDIA's tools. The link leads each of them to a file of its own, and the one that is watched is the
runtime's. No other program asks for that file, and it is no spec: the runtime notes that it cannot be read, and goes on.

It needs the node's own /proc, since each mount of /proc has files of its own. If there is no answer, the result is `undecided`.
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
"""Of a process: readable for everyone, one line, and without use outside user namespaces."""
QUIET_SECONDS = 0.2
"""The folder must be quiet for this long before the probe is written, so that what is heard is a read of the probe."""
PROBE_SECONDS = 2.0
"""A runtime reads a new spec within milliseconds; beside hundreds of others within a tenth of a second."""
OLD_PROCESS_HINT: Final = "restart it once, it may be older than the folder; if that changes nothing, CDI is switched off in its configuration"
SWITCH_HINT: Final = "set enable_cdi = true in the section of its CRI plugin, and restart it"
PROCESS_NAMES: Final = {"containerd": "containerd", "cri-o": "crio"}
"""The runtime's process, by the name that it tells kubelet."""
FIRST_CDI_VERSION: Final = {"containerd": (1, 7, 2), "cri-o": (1, 28, 0)}
"""The first that takes kubelet's CDI devices. containerd 1.7.0 reads the folder and ignores them (containerd#8519)."""
ON_BY_DEFAULT: Final = {"containerd": (2, 0, 0), "cri-o": (1, 28, 0)}


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """`status.nodeInfo.containerRuntimeVersion` of the node."""

    name: str
    version: tuple[int, int, int] = (0, 0, 0)

    @property
    def can_have_cdi(self) -> bool:
        """Whether this version knows kubelet's CDI devices at all."""
        return self.name in FIRST_CDI_VERSION and self.version >= FIRST_CDI_VERSION[self.name]

    @property
    def has_cdi_by_default(self) -> bool:
        """False: unless its configuration says otherwise it makes a container without the devices, and says nothing."""
        return self.name in ON_BY_DEFAULT and self.version >= ON_BY_DEFAULT[self.name]

    def __str__(self) -> str:
        return f"{self.name} {self.version[0]}.{self.version[1]}" if self.name else "an unknown runtime"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the self-check found out."""

    is_read: bool | None
    """Whether the runtime reads the folder; None: undecided."""
    reason: str
    is_fault: bool = False
    """Whether no container could get a card even if the runtime reads: the folder cannot be written to, no spec of NVIDIA's is there."""


def parse_runtime(text: str) -> ContainerRuntime:
    """`containerd://2.1.3-k3s1`; a text of another form is no runtime that is known."""
    found = re.match(r"(?P<name>[^:]+)://v?(?P<version>[0-9]+\.[0-9]+(\.[0-9]+)?)", text)
    if found is None:
        return ContainerRuntime("")
    major, minor, patch = (*map(int, found["version"].split(".")), 0)[:3]
    return ContainerRuntime(found["name"], (major, minor, patch))


def _describe_first(runtime: ContainerRuntime) -> str:
    first = FIRST_CDI_VERSION.get(runtime.name)
    return f"; the first that does is {'.'.join(map(str, first))}" if first is not None else ""


class RuntimeProbe:
    """Asks once each time; between two the runtime may be another."""

    def __init__(
        self,
        folder: SpecFolder,
        watch: ReadWatch,
        node_proc: Path,
        folders: Sequence[Path],
        *,
        is_in_pod: Callable[[int], bool],
    ) -> None:
        """`node_proc`: the /proc of the node, not this container's. `folders`: all that the runtime may read.

        `is_in_pod` answers for a process of the node.
        """
        self._is_in_pod = is_in_pod
        self._folder = folder
        self._watch = watch
        self._proc = node_proc
        self._folders = folders

    async def probe_runtime(self, runtime: ContainerRuntime) -> ProbeResult:
        """Raises `CdiError` where no spec can be written at all."""
        if not runtime.can_have_cdi:
            return ProbeResult(is_read=False, reason=f"{runtime} takes no CDI devices{_describe_first(runtime)}")
        if not (self._proc / "self").exists():
            return ProbeResult(
                is_read=None, reason=f"{self._proc} is not the node's /proc: who reads a spec cannot be told"
            )
        pids = list(self._list_runtime_processes(PROCESS_NAMES[runtime.name]))
        if not pids:
            return ProbeResult(is_read=None, reason=f"no process {PROCESS_NAMES[runtime.name]} is seen on this node")
        try:
            return await self._probe_processes(runtime, pids)
        except OSError as error:
            return ProbeResult(is_read=None, reason=f"reading cannot be watched: {error}")
        finally:
            self._folder.remove_spec(PROBE_NAME)

    async def _probe_processes(self, runtime: ContainerRuntime, pids: list[int]) -> ProbeResult:
        """Several of one name: of a runtime in a machine's container, of Docker. Only what all of them do is known."""
        paths = [self._proc / str(pid) / PROBED_FILE for pid in pids]
        with ExitStack() as stack:
            wake_readers(self._folders)
            for path in paths:  # an open file keeps its inode, which the watch is on
                stack.callback(os.close, os.open(path, os.O_PATH))
            reads = [self._watch.watch_file(path, IN_OPEN) for path in paths]
            for read in reads:
                stack.callback(self._watch.forget_file, read)
            for read in reads:
                if await read.wait_for_read(QUIET_SECONDS / len(reads)):
                    return ProbeResult(is_read=None, reason=f"something else reads {PROBED_FILE} of {runtime}")
            # As the reader sees it: in the runtime's own mount namespace /proc is where it always is.
            self._folder.write_probe(Path("/proc/self") / PROBED_FILE)
            outcomes = [await read.wait_for_read(PROBE_SECONDS) for read in reads[:1]]
            outcomes += [read.is_read for read in reads[1:]]
        if all(outcomes):
            return ProbeResult(is_read=True, reason=f"{runtime} reads specs")
        if any(outcomes):
            return ProbeResult(is_read=None, reason=f"of {len(pids)} processes of {runtime} only some read specs")
        if runtime.has_cdi_by_default:
            return ProbeResult(is_read=None, reason=f"{runtime} does not read specs: {OLD_PROCESS_HINT}")
        return ProbeResult(is_read=False, reason=f"{runtime} does not read specs: {SWITCH_HINT}")

    def _list_runtime_processes(self, name: str) -> Iterator[int]:
        """Those that are in no pod: a pod may run a whole runtime of its own."""
        for folder in self._proc.iterdir():
            if folder.name.isdecimal():
                with suppress(OSError):
                    is_it = (folder / "comm").read_bytes().strip() == name.encode()
                    if is_it and not self._is_in_pod(int(folder.name)):
                        yield int(folder.name)
