"""syft and cosign, built with Go at the versions that go.mod names, once, in a cache outside the tree."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.go_module import GoModule

MODULES = Path(__file__).parent / "programs"
PACKAGES = {"syft": "github.com/anchore/syft/cmd", "cosign": "github.com/sigstore/cosign/v3/cmd"}


def build_program(name: str) -> Path:
    """The program's path. Raises `RuntimeError` without Go, `CalledProcessError` when it does not build."""
    module = GoModule(MODULES / name, "release", PACKAGES[name])
    return module.build_programs(os.environ, name) / name
