"""Finds what a container needs for one card in the specs that NVIDIA's tools left on the node. Pure.

Three ways; the first that gives this very card counts:

1. the card's own device in a spec of NVIDIA's device plugin, or of `nvidia-ctk cdi generate`;
2. the common edits of such a spec, and the card's own nodes: a MIG instance that was cut after the spec was made;
3. the common edits of the management spec (libraries and their hooks) and the card's own nodes: what a GPU Operator without
   NVIDIA's device plugin leaves.

A device is used only if its nodes are the card's: with a spec older than the driver's current numbering, the container would
get another card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import msgspec

from vrampack.agent.cdi.spec_document import CdiDeviceNode, CdiEdits, CdiHook, CdiSpec, merge_edits
from vrampack.agent.nvml.driver import Gpu
from vrampack.cards.well_known import CDI_KIND

CARD_KINDS: Final = (CDI_KIND, "nvidia.com/gpu")
"""The kinds of NVIDIA's device plugin and of its toolkit."""
MANAGEMENT_KIND: Final = "management.nvidia.com/gpu"
MODESET_NODE: Final = "/dev/nvidia-modeset"
CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", MODESET_NODE)
CAPABILITIES: Final = "/dev/nvidia-caps/nvidia-cap"
DRIVERS: Final = {"/dev/nvidia-uvm": "nvidia-uvm", "/dev/nvidia-caps/": "nvidia-caps"}
DRM_FOLDER: Final = "/dev/dri"
DRM_MAJOR: Final = 226
"""The major number of every DRM node, whatever its name (DRM_MAJOR in include/drm/drm_drv.h)."""
LIMIT_HOOK: Final = "apply-cuda-memory-limits"
"""The argument that makes NVIDIA's hook enforce `NVIDIA_GPU_MEMORY_LIMIT` (toolkit 1.20.1, driver 615)."""
_CARD_NODE: Final = re.compile(r"/dev/nvidia[0-9]+")


@dataclass(frozen=True, slots=True)
class CardEdits:
    """The edits for one card, and the version of the spec that they are from."""

    edits: CdiEdits
    version: str


def find_own_edits(specs: Sequence[CdiSpec], gpu: Gpu, minors: Mapping[str, int]) -> CardEdits | None:
    """Way 1. `minors` is the driver's list of MIG capabilities, `gpu0/gi1/access` to N of `nvidia-capN`."""
    for spec in _list_of_kinds(specs, CARD_KINDS):
        for device in spec.devices:
            if device.name == gpu.uuid and _is_of_card(device.container_edits, gpu, minors):
                return CardEdits(merge_edits([spec.container_edits, device.container_edits]), spec.cdi_version)
    return None


def build_edits(specs: Sequence[CdiSpec], gpu: Gpu, minors: Mapping[str, int]) -> CardEdits | None:
    """Ways 2 and 3. None when no spec says how a container reaches the driver."""
    own = list_card_nodes(gpu, minors)
    if own is None:
        return None
    for spec in _list_of_kinds(specs, (*CARD_KINDS, MANAGEMENT_KIND)):
        known = {
            node.path: node
            for edits in (spec.container_edits, *(device.container_edits for device in spec.devices))
            for node in edits.device_nodes
        }
        control = [known[path] for path in CONTROL_NODES if path in known]
        if control:
            nodes = tuple(known.get(path) or CdiDeviceNode(path) for path in own)
            own_edits = CdiEdits(device_nodes=(*control, *nodes), hooks=tuple(_build_limit_hooks(spec, gpu)))
            merged = merge_edits([spec.container_edits, own_edits])
            return CardEdits(merged, spec.cdi_version)
    return None


def drop_drm_nodes(found: CardEdits) -> CardEdits:
    """The edits without `/dev/dri` and `/dev/nvidia-modeset`, through which a program could use uncounted memory."""
    edits = found.edits
    return CardEdits(
        CdiEdits(
            env=edits.env,
            device_nodes=tuple(node for node in edits.device_nodes if not _is_for_drawing(node)),
            mounts=tuple(mount for mount in edits.mounts if not _is_of_drm(mount.container_path, mount.host_path)),
            hooks=tuple(hook for hook in edits.hooks if not _is_about_drm(hook)),
            additional_gids=edits.additional_gids,
        ),
        found.version,
    )


def renumber_nodes(found: CardEdits, majors: Mapping[str, int]) -> CardEdits:
    """The edits with the major numbers of this boot: a spec from before it may have others."""
    nodes = tuple(
        msgspec.structs.replace(node, major=majors[driver])
        if node.major and (driver := _find_driver(node.path)) in majors
        else node
        for node in found.edits.device_nodes
    )
    return CardEdits(msgspec.structs.replace(found.edits, device_nodes=nodes), found.version)


def _find_driver(path: str) -> str:
    """The driver's name in `/proc/devices`, if its major number may change; empty for other drivers."""
    return next((driver for start, driver in DRIVERS.items() if path.startswith(start)), "")


def parse_device_majors(text: str) -> dict[str, int]:
    """The character devices of `/proc/devices`."""
    lines = text.partition("Block devices:")[0].splitlines()
    pairs = (line.split() for line in lines)
    return {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()}  # noqa: PLR2004 - a pair


def parse_mig_minors(text: str) -> dict[str, int]:
    """The lines of `/proc/driver/nvidia-caps/mig-minors`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}  # noqa: PLR2004 - a pair


def list_card_nodes(gpu: Gpu, minors: Mapping[str, int]) -> tuple[str, ...] | None:
    """The card's own nodes; None for an instance whose capabilities the driver does not list."""
    own = f"/dev/nvidia{gpu.minor}"
    if gpu.mig_parent is None:
        return (own,)
    instance = f"gpu{gpu.minor}/gi{gpu.gpu_instance}"
    keys = (f"{instance}/access", f"{instance}/ci{gpu.compute_instance}/access")
    if not all(key in minors for key in keys):
        return None
    return (own, *(f"{CAPABILITIES}{minors[key]}" for key in keys))


def _list_of_kinds(specs: Iterable[CdiSpec], kinds: Sequence[str]) -> list[CdiSpec]:
    """The specs of these kinds, in the order of the kinds."""
    return sorted((spec for spec in specs if spec.kind in kinds), key=lambda spec: kinds.index(spec.kind))


def _is_of_card(edits: CdiEdits, gpu: Gpu, minors: Mapping[str, int]) -> bool:
    """Whether these are the nodes of this card, and of no other."""
    paths = {node.path for node in edits.device_nodes}
    cards = {path for path in paths if _CARD_NODE.fullmatch(path)}
    capabilities = {path for path in paths if path.startswith(CAPABILITIES)}
    own = list_card_nodes(gpu, minors)
    return own is not None and cards | capabilities == set(own)


def has_limit_hook(edits: CdiEdits) -> bool:
    """Whether NVIDIA's toolkit puts the limit of a container with these edits in force."""
    return any(LIMIT_HOOK in hook.args for hook in edits.hooks)


def _build_limit_hooks(spec: CdiSpec, gpu: Gpu) -> Iterator[CdiHook]:
    """The limit hook that the spec has for another card, for this one. An instance has none."""
    hooks = (hook for device in spec.devices for hook in device.container_edits.hooks if LIMIT_HOOK in hook.args)
    template = next(hooks, None)
    if template is not None and "--gpu-id" in template.args and gpu.mig_parent is None:
        at = template.args.index("--gpu-id") + 1
        yield msgspec.structs.replace(template, args=(*template.args[:at], gpu.uuid, *template.args[at + 1 :]))


def _is_for_drawing(node: CdiDeviceNode) -> bool:
    return (
        _is_of_drm(node.path, node.host_path) or node.major == DRM_MAJOR or MODESET_NODE in {node.path, node.host_path}
    )


def _is_of_drm(*paths: str) -> bool:
    """Whether a path is `/dev/dri` or below it: a node may have another name inside the container."""
    return any(PurePosixPath(DRM_FOLDER) in (each := PurePosixPath(path), *each.parents) for path in paths)


def _is_about_drm(hook: CdiHook) -> bool:
    """Whether the hook only links or opens what is in `/dev/dri`."""
    operands = [each for each in hook.args[2:] if "/" in each]
    return bool(operands) and all(DRM_FOLDER in each for each in operands)
