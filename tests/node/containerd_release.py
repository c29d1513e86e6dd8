"""The releases of containerd that a node of this suite can have.

A test says which by `@pytest.mark.containerd(BUILT_2)`, or by `pytestmark` for its file; more than one runs it on each of
them. Debian's stays the first: on it the driver is in every container, as where NVIDIA's runtime is the default one. On
the others it is in those of RuntimeClass `nvidia` alone, as on nodes that NVIDIA's operator sets up since 25.10.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_module import GoModule

MODULES = Path(__file__).parent / "containerd_modules"
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
DEFAULT_HANDLER = "runc"
NVIDIA_HANDLER = "nvidia"


@dataclass(frozen=True, slots=True)
class ContainerdRelease:
    """One release, with the configuration that it ships: CDI is not mentioned."""

    name: str
    configuration: int
    """The version of its configuration file: 3 since containerd 2."""
    handler_with_driver: str
    """The runtime handler whose containers the driver is in."""
    packages: str = ""
    """Where its main packages are, for one that is built of the Go module of its name; empty for Debian's."""
    kubernetes: str = ""
    """The version that the programs of its control plane emulate; empty: that which they are."""

    @property
    def is_driver_everywhere(self) -> bool:
        """Whether every container has the driver, as where NVIDIA's runtime is the default one. No CDI spec is there then."""
        return self.handler_with_driver == DEFAULT_HANDLER

    def build(self, environ: Mapping[str, str] = os.environ) -> Path | None:
        """The folder of its programs, which need not be on PATH; None for one that is installed."""
        if not self.packages:
            return None
        module = GoModule(MODULES / self.name, "containerd", self.packages)
        return module.build_programs(environ, *PROGRAMS)


DEBIAN_1_6 = ContainerdRelease("containerd-1.6", 2, DEFAULT_HANDLER)
"""It knows nothing of CDI."""
BUILT_1_7 = ContainerdRelease("containerd-1.7", 2, NVIDIA_HANDLER, "github.com/containerd/containerd/cmd", "1.33")
"""It knows CDI and has it off. Its cluster is an old one, too: 1.33 is the oldest that can be emulated."""
BUILT_2 = ContainerdRelease("containerd-2", 3, NVIDIA_HANDLER, "github.com/containerd/containerd/v2/cmd")
"""CDI is on."""
RELEASES = (DEBIAN_1_6, BUILT_1_7, BUILT_2)
