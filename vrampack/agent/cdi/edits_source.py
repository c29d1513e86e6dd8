"""Finds the edits for a card on this node: in the specs of its folders, else in the output of the host's `nvidia-ctk`.

Only changed files are read again: a folder may hold hundreds of specs that have nothing to do with cards. Our own specs are
never read: `read_watch.py` waits until the runtime reads them, and would mistake this process for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
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
    parse_device_majors,
    parse_mig_minors,
    renumber_nodes,
)
from vrampack.agent.cdi.errors import CdiError
from vrampack.agent.cdi.spec_document import CdiSpec
from vrampack.agent.inventory.cdi_files import is_spec_of_ours, read_documents
from vrampack.agent.nvml.driver import Gpu

log = logging.getLogger(__name__)

GENERATE_SECONDS = 20.0
"""nvidia-ctk asks the driver about every card; it takes about a second."""
GENERATE_AGAIN_SECONDS = 30.0
"""The pause after a run that failed, or that did not know the card."""
MIG_MINORS: Final = Path("driver/nvidia-caps/mig-minors")
"""Path below /proc, with the same content in every mount of it."""

FileState: TypeAlias = tuple[int, int, int]
"""Inode, size and time of the last change, in ns."""


@dataclass(frozen=True, slots=True)
class CdiHostPaths:
    """The CDI files and programs of the node, as the agent sees them."""

    folders: Sequence[Path]
    """The folders that the runtime reads, the one that wins last."""
    proc: Path
    generator: Path | None = None
    """The host's `nvidia-ctk`, if it can be run from here."""
    driver_root: str = "/"


class EditsSource:
    """The edits of this node's cards."""

    def __init__(self, paths: CdiHostPaths, *, has_drm_nodes: bool) -> None:
        self._paths = paths
        self._has_drm_nodes = has_drm_nodes
        self._states: Mapping[str, FileState] = {}
        """The state of each file when it was last read."""
        self._specs: Mapping[str, CdiSpec] = {}
        """The specs about cards, by path; those of the folder with precedence come first."""
        self._generated: tuple[CdiSpec, ...] = ()
        self._generate_lock = asyncio.Lock()
        self._generate_again_at: dict[str, float] = {}
        """When `nvidia-ctk` may run again for a card, by uuid, in seconds of the monotonic clock."""

    async def find_edits(self, gpu: Gpu) -> CardEdits:
        """The edits for one card. Raises `CdiError` if nothing on the node says how a container reaches the driver."""
        await self._read_changed_files()
        minors = _read_mig_minors(self._paths.proc)
        found = find_own_edits(self._list_specs(), gpu, minors)
        if found is None and self._paths.generator is not None:
            async with self._generate_lock:
                await self._generate_spec(self._paths.generator, gpu)
            found = find_own_edits(self._generated, gpu, minors)
        found = found or build_edits(self._list_specs(), gpu, minors)
        if found is None:
            raise CdiError(
                f"no CDI spec of NVIDIA's in {' or '.join(map(str, self._paths.folders))} tells how a container gets "
                f"card {gpu.uuid}; the GPU Operator, `nvidia-ctk cdi generate` or nvidia-cdi-refresh.service make one"
            )
        found = renumber_nodes(found, _read_majors(self._paths.proc))
        return found if self._has_drm_nodes else drop_drm_nodes(found)

    def _list_specs(self) -> list[CdiSpec]:
        return [*self._specs.values(), *self._generated]

    async def _read_changed_files(self) -> None:
        states = _list_files(self._paths.folders)
        if states == self._states:
            return
        changed = [path for path, state in states.items() if self._states.get(path) != state]
        known = {**self._specs, **await asyncio.to_thread(_read_specs, changed)}
        self._specs = {path: spec for path in states if (spec := known.get(path)) is not None}
        self._states = states

    async def _generate_spec(self, generator: Path, gpu: Gpu) -> None:
        """Run `nvidia-ctk` once for each card that no spec has, and again after a while: a toolkit may be installed later."""
        if time.monotonic() < self._generate_again_at.get(gpu.uuid, 0) or not _is_program(generator):
            return
        arguments = ("cdi", "generate", "--format=json", "--device-name-strategy=uuid")
        try:
            output = await _run_program(generator, *arguments, f"--driver-root={self._paths.driver_root}")
            self._generated = (msgspec.json.decode(output, type=CdiSpec),)
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            log.warning("spec not generated program=%s error=%s", generator, repr(error))
        self._generate_again_at[gpu.uuid] = time.monotonic() + GENERATE_AGAIN_SECONDS


def _list_files(folders: Sequence[Path]) -> dict[str, FileState]:
    """Specs that are not ours, those of the folder with precedence first. Builds no `Path`s, as it runs at every start."""
    states: dict[str, FileState] = {}
    for folder in reversed(folders):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
                if entry.name.endswith((".json", ".yaml")) and not is_spec_of_ours(entry.name):
                    try:
                        found = entry.stat()
                    except FileNotFoundError:
                        continue  # deleted meanwhile
                    states[entry.path] = found.st_ino, found.st_size, found.st_mtime_ns
    return states


def _read_specs(paths: Sequence[str]) -> dict[str, CdiSpec | None]:
    return {path: _read_spec(Path(path)) for path in paths}


def _read_spec(path: Path) -> CdiSpec | None:
    """A spec of NVIDIA's; None when it is about something else or cannot be read."""
    for document in read_documents(path):
        if document.get("kind") in (*CARD_KINDS, MANAGEMENT_KIND):
            try:
                return msgspec.convert(document, CdiSpec)
            except msgspec.ValidationError as error:
                log.warning("spec skipped path=%s reason=%s", path, error)
    return None


def _read_mig_minors(proc: Path) -> dict[str, int]:
    """The minors of MIG capabilities; empty when no card supports MIG."""
    try:
        return parse_mig_minors((proc / MIG_MINORS).read_text(errors="replace"))
    except OSError:
        return {}


def _read_majors(proc: Path) -> dict[str, int]:
    """Of character devices, by the driver's name."""
    try:
        return parse_device_majors((proc / "devices").read_text(errors="replace"))
    except OSError:
        return {}


def _is_program(path: Path) -> bool:
    return path.is_file()


async def _run_program(program: Path, *arguments: str) -> bytes:
    """The program's standard output. Raises `OSError` or `TimeoutError`."""
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
