"""Finds or builds etcd, the Kubernetes control plane and kubectl, at a pinned version of each supported release.

Each program is taken from `KUBEBUILDER_ASSETS` when it is there, else from `PATH` when it has the
pinned minor version, else from a cache outside the tree, which is filled by `go build` from
`tests/e2e/controlplane`. The cache is keyed by go.sum, our own mains and the Go version. `VRAMPACK_KUBERNETES`
chooses another release than that of go.mod, one of `releases/`.
`python -m tests.support.control_plane.binaries` builds what is missing and prints where each program lies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.go_module import GoModule

MODULE = Path(__file__).parents[2] / "e2e" / "controlplane"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
IDLE_EXTENDER = "idle-extender"
"""What the benchmarks compare ours with; built only when they need it."""
KUBELET, PAUSE = "kubelet", "pause"
"""What the node suite runs beside the control plane; also built only when needed."""
FIRST_WITH_MUTATING_POLICIES = (1, 36)
"""Of `v1`. The oldest release that this one can emulate is 1.33."""
RELEASE_VARIABLE = "VRAMPACK_KUBERNETES"
"""A minor version, such as `1.34`; that of go.mod without it."""


def locate_programs(environ: Mapping[str, str] = os.environ, *, programs: Sequence[str] = PROGRAMS) -> dict[str, Path]:
    """Where each of these programs lies; builds what is missing. Raises `RuntimeError` without Go."""
    given = {name: path for name in programs if (path := _given(name, environ))}
    if len(given) == len(programs):
        return given
    built = build_programs(environ, programs=programs)
    return {name: given.get(name, built / name) for name in programs}


def read_pinned_version(environ: Mapping[str, str] = os.environ) -> str:
    """The Kubernetes version of the release that is chosen, e.g. `v1.36.3`."""
    return _read_version(_select_mod_file(environ))


def read_minor_version(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """`(1, 36)`."""
    major, minor, _ = read_pinned_version(environ).removeprefix("v").split(".")
    return int(major), int(minor)


def choose_older_version(environ: Mapping[str, str] = os.environ) -> str | None:
    """The version to emulate for an API server without mutating policies; None if this release has none itself."""
    return "1.33" if read_minor_version(environ) >= FIRST_WITH_MUTATING_POLICIES else None


def build_programs(environ: Mapping[str, str] = os.environ, *, programs: Sequence[str] = PROGRAMS) -> Path:
    """Fill the cache folder of this go.sum and Go version, once, and return it."""
    return _select_module(environ).build_programs(environ, *programs)


def _select_module(environ: Mapping[str, str]) -> GoModule:
    mod_file = _select_mod_file(environ)
    version = _read_version(mod_file)
    stamps = " ".join(
        f"-X k8s.io/{package}/version.gitVersion={version}" for package in ("component-base", "client-go/pkg")
    )
    return GoModule(MODULE, "controlplane", "./cmd", stamps, mod_file)


def _select_mod_file(environ: Mapping[str, str]) -> str:
    """Below the module. Raises `RuntimeError` for a release that is not there."""
    release = environ.get(RELEASE_VARIABLE)
    if not release or _read_version("go.mod").startswith(f"v{release}."):
        return "go.mod"
    there = sorted(path.stem for path in (MODULE / "releases").glob("*.mod"))
    if release not in there:
        raise RuntimeError(f"{RELEASE_VARIABLE}={release}: releases beside that of go.mod are {', '.join(there)}")
    return f"releases/{release}.mod"


def _read_version(mod_file: str) -> str:
    match = re.search(r"k8s\.io/kubernetes (v\S+)", (MODULE / mod_file).read_text())
    if match is None:
        raise RuntimeError(f"{MODULE / mod_file} does not require k8s.io/kubernetes")
    return match.group(1)


def _given(name: str, environ: Mapping[str, str]) -> Path | None:
    assets = environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / name).exists():
        return Path(assets) / name
    for folder in environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder)
        if found and _has_pinned_minor(name, found, environ):
            return Path(found)
    return None


def _has_pinned_minor(name: str, program: str, environ: Mapping[str, str]) -> bool:
    """Whether a program found on PATH is what the suite was written for; distributions ship old ones."""
    arguments = {"kubectl": ["version", "--client"]}.get(name, ["--version"])
    answer = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30, check=False).stdout
    if name == "etcd":
        return "etcd Version: 3.6." in answer
    return f"{read_pinned_version(environ).rpartition('.')[0]}." in answer


if __name__ == "__main__":
    for program_name, program_path in locate_programs().items():
        sys.stdout.write(f"{program_name}\t{program_path}\n")
