"""Where the edits for a card come from on this node: the specs in its folders, else what the host's `nvidia-ctk` makes.

Files are read again when they have changed, one by one: beside ours a folder may hold hundreds that have nothing to do with
cards. Ours are never read: the folder's reader that `read_watch.py` waits for is the runtime, not this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from vrampack.agent.cdi.card_edits import (
    CARD_KINDS,
    MANAGEMENT_KIND,
    CardEdits,
    build_edits,
    drop_drm_nodes,
    find_own_edits,
    parse_mig_minors,
)
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.spec_document import CdiSpec
from vrampack.agent.inventory.cdi_files import is_spec_of_ours, read_documents
from vrampack.agent.nvml.driver import Gpu

log = logging.getLogger(__name__)

GENERATE_SECONDS = 20.0
"""nvidia-ctk asks the driver about every card; it takes about a second."""
MIG_MINORS: Final = Path("driver/nvidia-caps/mig-minors")
"""Below /proc. The same in every mount of it."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, size and time of the last change, in ns."""


@dataclass(frozen=True, slots=True)
class CdiHostPaths:
    """Where things of CDI are on the node, as the agent sees them."""

    folders: Sequence[Path]
    """The folders that the runtime reads, the one that wins last."""
    proc: Path
    generator: Path | None = None
    """`nvidia-ctk` of the host, where it can be run from here."""
    driver_root: str = "/"


class EditsSource:
    """The edits of this node's cards."""

    def __init__(self, paths: CdiHostPaths, *, has_drm_nodes: bool) -> None:
        self._paths = paths
        self._has_drm_nodes = has_drm_nodes
        self._states: Mapping[str, FileState] = {}
        """All files as they were when they were last read."""
        self._specs: Mapping[str, CdiSpec] = {}
        """Those about cards, by path; first those of the folder that wins."""
        self._generated: tuple[CdiSpec, ...] = ()
        self._generated_for: frozenset[str] = frozenset()
        """The cards that were asked for when `nvidia-ctk` was last run, whatever came of it."""

    async def find_edits(self, gpu: Gpu) -> CardEdits:
        """For one card. Raises `CdiError` where nothing on the node says how a container gets at the driver."""
        await self._read_changed_files()
        minors = _read_mig_minors(self._paths.proc)
        specs = [*self._specs.values(), *self._generated]
        found = find_own_edits(specs, gpu, minors)
        if found is None and self._paths.generator is not None and gpu.uuid not in self._generated_for:
            await self._generate_spec(self._paths.generator, gpu)
            found = find_own_edits(self._generated, gpu, minors)
        found = found or build_edits(specs, gpu, minors)
        if found is None:
            raise CdiError(
                f"no CDI spec of NVIDIA's in {' or '.join(map(str, self._paths.folders))} tells how a container gets "
                f"card {gpu.uuid}; the GPU Operator, `nvidia-ctk cdi generate` or nvidia-cdi-refresh.service make one"
            )
        return found if self._has_drm_nodes else drop_drm_nodes(found)

    async def _read_changed_files(self) -> None:
        states = _list_files(self._paths.folders)
        if states == self._states:
            return
        changed = [path for path, state in states.items() if self._states.get(path) != state]
        known = {**self._specs, **await asyncio.to_thread(_read_specs, changed)}
        self._specs = {path: spec for path in states if (spec := known.get(path)) is not None}
        self._states = states

    async def _generate_spec(self, generator: Path, gpu: Gpu) -> None:
        """Once for each card that no spec knows: what failed then fails again."""
        self._generated_for |= {gpu.uuid}
        arguments = ("cdi", "generate", "--format=json", "--device-name-strategy=uuid")
        try:
            output = await _run_program(generator, *arguments, f"--driver-root={self._paths.driver_root}")
            self._generated = (msgspec.json.decode(output, type=CdiSpec),)
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("spec not generated program=%s error=%s", generator, repr(error))


def _list_files(folders: Sequence[Path]) -> dict[str, FileState]:
    """Specs that are not ours, the folder that wins last first. At every start, so no path is made of each of hundreds."""
    states: dict[str, FileState] = {}
    for folder in reversed(folders):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
                if entry.name.endswith((".json", ".yaml")) and not is_spec_of_ours(entry.name):
                    try:
                        found = entry.stat()
                    except FileNotFoundError:
                        continue  # it went meanwhile
                    states[entry.path] = found.st_ino, found.st_size, found.st_mtime_ns
    return states


def _read_specs(paths: Sequence[str]) -> dict[str, CdiSpec | None]:
    return {path: _read_spec(Path(path)) for path in paths}


def _read_spec(path: Path) -> CdiSpec | None:
    """One of NVIDIA's. None: it is about something else, or cannot be read."""
    for document in read_documents(path):
        if document.get("kind") in (*CARD_KINDS, MANAGEMENT_KIND):
            try:
                return msgspec.convert(document, CdiSpec)
            except msgspec.ValidationError as error:
                log.warning("spec skipped path=%s reason=%s", path, error)
    return None


def _read_mig_minors(proc: Path) -> dict[str, int]:
    """Empty where no card can be cut."""
    try:
        return parse_mig_minors((proc / MIG_MINORS).read_text(errors="replace"))
    except OSError:
        return {}


async def _run_program(program: Path, *arguments: str) -> bytes:
    """What it writes. Raises `OSError` or `TimeoutError`."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(GENERATE_SECONDS):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise OSError(f"{program} ended with status {process.returncode}")
    return output
