"""The driver's device nodes for drawing: memory taken through them passes no control file, so nothing counts it.

`docs/enforcement.md` says what that lets a tenant do. The protection is that containers get none of these nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def list_drm_nodes(modules: Path) -> Iterator[str]:
    """The drawing nodes that this kernel's NVIDIA modules can create; `modules` is its /sys/module."""
    if (modules / "nvidia_modeset").is_dir():
        yield "/dev/nvidia-modeset"
    if (modules / "nvidia_drm").is_dir() and _is_drm_drawing(modules):
        yield "/dev/dri/renderD*"


def _is_drm_drawing(modules: Path) -> bool:
    """Whether nvidia-drm registers a device: only with `modeset`, which only root may read; the default since driver 595."""
    try:
        return (modules / "nvidia_drm" / "parameters" / "modeset").read_text().strip() != "N"
    except OSError:
        return True
