"""What a node has that decides about back ends: driver, cgroups, MIG, confidential computing, NVIDIA's container toolkit, our hook.

Each back end's row checks what that back end alone needs. A runtime's configuration shows that a hook is installed, not that
the runtime was restarted since: the proof is the hook's first question (`hook_server.py` counts them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vrampack.agent.inventory.cdi_files import CDI_FOLDERS, list_mappings, read_cdi_documents, read_documents
from vrampack.cards.well_known import CDI_KIND

HOOK_NAME = "vrampack-hook"
TOOLKIT_HOOK = "apply-cuda-memory-limits"
RUNTIME_SPECS = tuple(Path("/node/etc/vrampack") / name for name in ("containerd.json", "crio.json"))
"""Where docs/limits.md has people put it, as the agent's pod sees it: our own folder, as the runtime's has passwords."""


class ToolkitState(StrEnum):
    """What NVIDIA's CDI files say about kind `k8s.device-plugin.nvidia.com/gpu`."""

    ABSENT = "no such kind"
    OLD = "kind there, without the memory hook (container toolkit before 1.20.1)"
    READY = "kind there, with the memory hook"


@dataclass(frozen=True, slots=True)
class NodeCapabilities:
    """The facts for the selection, besides what each back end checks itself."""

    driver_version: str
    """In NVML's form, `615.71.09`; empty without a driver."""
    cgroup_version: int
    has_mig: bool
    has_confidential_computing: bool
    toolkit: ToolkitState
    has_hook: bool

    @property
    def driver_branch(self) -> int:
        """615 of 615.71.09; 0 when it cannot be read."""
        branch = self.driver_version.partition(".")[0]
        return int(branch) if branch.isascii() and branch.isdecimal() else 0


def detect_capabilities(
    *,
    driver_version: str,
    has_mig: bool,
    has_confidential_computing: bool,
    cgroup_version: int,
    cdi_folders: Sequence[Path] = CDI_FOLDERS,
    runtime_specs: Sequence[Path] = (),
) -> NodeCapabilities:
    """`runtime_specs`: files named by containerd's `base_runtime_spec`, or in CRI-O's `hooks_dir`, by their paths here."""
    cdi = list(read_cdi_documents(cdi_folders))
    specs = [document for path in runtime_specs for document in read_documents(path)]
    hooks = [hook for document in (*cdi, *specs) for hook in _list_create_runtime_hooks(document)]
    return NodeCapabilities(
        driver_version=driver_version,
        cgroup_version=cgroup_version,
        has_mig=has_mig,
        has_confidential_computing=has_confidential_computing,
        toolkit=_detect_toolkit(cdi),
        has_hook=any(Path(str(hook.get("path"))).name == HOOK_NAME for hook in hooks),
    )


def _detect_toolkit(cdi: Iterable[dict[str, object]]) -> ToolkitState:
    ours = [document for document in cdi if document.get("kind") == CDI_KIND]
    if not ours:
        return ToolkitState.ABSENT
    hooks = (hook for document in ours for hook in _list_create_runtime_hooks(document))
    return ToolkitState.READY if any(TOOLKIT_HOOK in _list(hook.get("args")) for hook in hooks) else ToolkitState.OLD


def _list_create_runtime_hooks(document: dict[str, object]) -> Iterator[dict[str, object]]:
    """The createRuntime hooks of an OCI spec, of one of CRI-O's hook files, or of a CDI file's edits."""
    if "createRuntime" in _list(document.get("stages")):
        yield _dict(document.get("hook"))
    yield from list_mappings(_dict(document.get("hooks")).get("createRuntime"))
    for holder in (document, *list_mappings(document.get("devices"))):
        hooks = list_mappings(_dict(holder.get("containerEdits")).get("hooks"))
        yield from (hook for hook in hooks if hook.get("hookName") == "createRuntime")


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
