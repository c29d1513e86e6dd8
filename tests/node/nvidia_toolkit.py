"""Programs of NVIDIA's container toolkit 1.20, built of its Go module: its runtime in mode `cdi`, and its NRI plugin.

Both run without a card. Not here: mode `legacy`, whose hook calls libnvidia-container, which is C, needs the driver and is
in no Go module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.go_module import GoModule

MODULE = Path(__file__).parent / "toolkit_module"
CDI_RUNTIME = "nvidia-container-runtime.cdi"
NRI_PLUGIN = "nri-plugin"
TOOLKIT_PROGRAMS = (CDI_RUNTIME, NRI_PLUGIN)


def build_toolkit(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of its programs."""
    GoModule(MODULE, "toolkit", "./cmd").build_programs(environ, NRI_PLUGIN)
    packages = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
    return GoModule(MODULE, "toolkit", packages, has_c=True).build_programs(environ, CDI_RUNTIME)
