"""What a node has that a limit can be held with: driver, cgroups, MIG, NVIDIA's container toolkit, our hook, library, module.

Files only, read at the start and when the agent is told to look again. A runtime's configuration says that a hook is
there, not that the runtime was restarted since: the proof is the hook's first question (`hook_server.py` counts them).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from vrampack.cards.well_known import CDI_KIND

CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
HOOK_NAME = "vrampack-hook"
NOT_PROBED = "the kernel module was not looked for"
TOOLKIT_HOOK = "apply-cuda-memory-limits"
MAX_FILE_BYTES = 4 << 20
"""A CDI file of 16 cards has about 100 KB; a file above this is not looked at."""

log = logging.getLogger(__name__)


class ToolkitState(StrEnum):
    """What NVIDIA's CDI files say of kind `k8s.device-plugin.nvidia.com/gpu`."""

    ABSENT = "no such kind"
    OLD = "kind there, without the memory hook (container toolkit before 1.20.1)"
    READY = "kind there, with the memory hook"


@dataclass(frozen=True, slots=True)
class NodeCapabilities:
    """The facts that the choice is made of."""

    driver_version: str
    """As NVML says it: `615.71.09`; empty without a driver."""
    cgroup_version: int
    has_mig: bool
    toolkit: ToolkitState
    has_hook: bool
    library_problem: str = "not looked for"
    """Why our library cannot be given to containers; empty when it can."""
    module_problem: str = NOT_PROBED
    """Why our kernel module cannot be used; empty when it can."""

    @property
    def driver_branch(self) -> int:
        """615 of 615.71.09; 0 when it cannot be read."""
        branch = self.driver_version.partition(".")[0]
        return int(branch) if branch.isascii() and branch.isdecimal() else 0


def detect_capabilities(  # noqa: PLR0913 - what is looked at, each named
    *,
    driver_version: str,
    has_mig: bool,
    cgroup_version: int,
    cdi_folders: Sequence[Path] = CDI_FOLDERS,
    runtime_specs: Sequence[Path] = (),
    library_paths: tuple[Path, Path] | None = None,
    module_problem: str = NOT_PROBED,
) -> NodeCapabilities:
    """`runtime_specs`: files that containerd's `base_runtime_spec` names, or of CRI-O's `hooks_dir`, as seen here.

    `library`: the one that came with this agent, and the folder of the node that containers are shown it in.
    `module_problem`: as `kmod/preflight.py` has it.
    """
    cdi = [document for path in _cdi_files(cdi_folders) for document in _read_documents(path)]
    specs = [document for path in runtime_specs for document in _read_documents(path)]
    hooks = [hook for document in (*cdi, *specs) for hook in _list_create_runtime_hooks(document)]
    return NodeCapabilities(
        driver_version=driver_version,
        cgroup_version=cgroup_version,
        has_mig=has_mig,
        toolkit=_detect_toolkit(cdi),
        has_hook=any(Path(str(hook.get("path"))).name == HOOK_NAME for hook in hooks),
        library_problem="not looked for" if library_paths is None else _find_library_problem(*library_paths),
        module_problem=module_problem,
    )


def _find_library_problem(shipped: Path, folder: Path) -> str:
    if not shipped.is_file():
        return f"{shipped} did not come with this agent"
    return "" if os.access(folder, os.W_OK) else f"{folder} of the node is not there to be written to"


def _detect_toolkit(cdi: Iterable[dict[str, object]]) -> ToolkitState:
    ours = [document for document in cdi if document.get("kind") == CDI_KIND]
    if not ours:
        return ToolkitState.ABSENT
    hooks = (hook for document in ours for hook in _list_create_runtime_hooks(document))
    return ToolkitState.READY if any(TOOLKIT_HOOK in _list(hook.get("args")) for hook in hooks) else ToolkitState.OLD


def _cdi_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.glob("*") if path.suffix in {".json", ".yaml", ".yml"})


def _read_documents(path: Path) -> Iterator[dict[str, object]]:
    """The file's document, when it is one: somebody else's broken file is said and passed over, as runtimes do."""
    try:
        text = _read_text(path)
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        log.warning("file skipped path=%s reason=%s", path, str(error).partition("\n")[0])
        return
    if isinstance(document, dict):
        yield document


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(MAX_FILE_BYTES + 1)
    if len(start) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    return start.decode()


def _list_create_runtime_hooks(document: dict[str, object]) -> Iterator[dict[str, object]]:
    """What is called at createRuntime: by an OCI spec, by one of CRI-O's hook files, by the edits of a CDI file."""
    if "createRuntime" in _list(document.get("stages")):
        yield _dict(document.get("hook"))
    yield from _dicts(_dict(document.get("hooks")).get("createRuntime"))
    for holder in (document, *_dicts(document.get("devices"))):
        hooks = _dicts(_dict(holder.get("containerEdits")).get("hooks"))
        yield from (hook for hook in hooks if hook.get("hookName") == "createRuntime")


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _dicts(value: object) -> Iterator[dict[str, object]]:
    return (item for item in _list(value) if isinstance(item, dict))


def list_cdi_devices(folders: Sequence[Path] = CDI_FOLDERS) -> frozenset[str]:
    """What CDI files here name of NVIDIA's kind: uuids of cards, and whatever else."""
    named = (
        _dicts(document.get("devices"))
        for path in _cdi_files(folders)
        for document in _read_documents(path)
        if document.get("kind") == CDI_KIND
    )
    return frozenset(str(device.get("name")) for devices in named for device in devices)
