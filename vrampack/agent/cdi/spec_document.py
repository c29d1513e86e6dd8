"""CDI specs as values: the fields that the agent reads from NVIDIA's and writes into ours.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

MIN_VERSION: Final = "0.5.0"
"""The version of our specs: the first in which a device's name may begin with a digit."""


class CdiDeviceNode(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A device node. Without numbers the runtime uses those of the host's node."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class CdiMount(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A mount from the host."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class CdiHook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An OCI hook; the path is the host's."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class CdiEdits(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is changed in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiDeviceNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    additional_gids: tuple[int, ...] = ()


class CdiDevice(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One device of a spec."""

    name: str
    container_edits: CdiEdits = CdiEdits()


class CdiSpec(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A whole file."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...] = ()
    container_edits: CdiEdits = CdiEdits()


def merge_edits(all_edits: Iterable[CdiEdits]) -> CdiEdits:
    """Merge edits in order: the last definition of a variable, node or mount counts, and nothing appears twice."""
    edits = list(all_edits)
    return CdiEdits(
        env=tuple({each.partition("=")[0]: each for part in edits for each in part.env}.values()),
        device_nodes=tuple({each.path: each for part in edits for each in part.device_nodes}.values()),
        mounts=tuple({each.container_path: each for part in edits for each in part.mounts}.values()),
        hooks=tuple(dict.fromkeys(each for part in edits for each in part.hooks)),
        additional_gids=tuple(dict.fromkeys(each for part in edits for each in part.additional_gids)),
    )


def choose_version(versions: Iterable[str]) -> str:
    """The lowest version that covers specs of these versions: an older runtime refuses a spec with a newer version."""
    return max([MIN_VERSION, *versions], key=lambda version: tuple(_list_numbers(version)))


def _list_numbers(version: str) -> Iterator[int]:
    return (int(part) for part in version.split(".") if part.isascii() and part.isdecimal())
