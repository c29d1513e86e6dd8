"""The driver's device nodes for drawing: memory that is taken through them passes no control file, so it is not counted.

`docs/enforcement.md` has what that lets a tenant do. What keeps it from happening is that containers get none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def list_drawing_nodes(modules: Path) -> Iterator[str]:
    """Those that this kernel can have by its NVIDIA modules; `modules` is its /sys/module."""
    if (modules / "nvidia_modeset").is_dir():
        yield "/dev/nvidia-modeset"
    if (modules / "nvidia_drm").is_dir() and _is_drm_drawing(modules):
        yield "/dev/dri/renderD*"


def _is_drm_drawing(modules: Path) -> bool:
    """Without `modeset` it registers no device. Only root may read that; on drivers from 595 on it is the default."""
    try:
        return (modules / "nvidia_drm" / "parameters" / "modeset").read_text().strip() != "N"
    except OSError:
        return True
