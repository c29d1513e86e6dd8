"""What the tests inside need from outside: where the node's files are, and the name of its control group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import REPOSITORY

BUILD = REPOSITORY / "build/node"
"""What outlives a run: archives of images, and the logs of the last run."""
LOGS = BUILD / "logs"
VARIABLE = "VRAMPACK_NODE_SITE"


@dataclass(frozen=True, slots=True)
class NodeSite:
    """One run. The last part of `site` is the name of the run's control group too."""

    site: Path

    @property
    def cgroup(self) -> str:
        return self.site.name

    @property
    def programs(self) -> Path:
        return self.site / "programs"

    @property
    def archives(self) -> Path:
        return self.site / "images"

    @property
    def logs(self) -> Path:
        """They outlive the run: two nodes with the same containerd have folders of their own."""
        return LOGS / self.site.name

    @property
    def toolkit(self) -> Path:
        """The programs of NVIDIA's container toolkit."""
        return self.site / "toolkit"

    def containerd(self, release: str) -> Path:
        """The programs of a containerd that was built; not there for one that is installed."""
        return self.site / "containerd" / release

    @classmethod
    def inside_namespaces(cls, environ: Mapping[str, str] = os.environ) -> NodeSite:
        """Of a test that `python -m tests.node` runs; nowhere else may it touch the machine."""
        if VARIABLE not in environ:
            raise RuntimeError("these tests run in namespaces of their own: `make e2e-node`, or python -m tests.node")
        return cls(Path(environ[VARIABLE]))
