"""The images of the node, made before it starts: inside there is no network.

The product's comes from the shipped Dockerfile. The scheduler's is the program that the control plane was built with. What
a pod of a test runs is busybox, under the names that the manifests use.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from images import environment_trim
from tests.fakes.driver.build import build_fake_driver
from tests.node.archives import Content, write
from tests.support.control_plane import binaries
from tests.support.manifests import MANIFESTS, find_containers, load_objects
from tests.support.processes import REPOSITORY
from vrampack.cli.version import VERSION

PAUSE_NAME = "registry.k8s.io/pause:3.10"
BUSYBOX_NAME = "docker.io/library/busybox:1.35"
SCHEDULER_NAME = f"registry.k8s.io/kube-scheduler:{binaries.read_pinned_version()}"
CUDA_NAME = "docker.io/library/cuda-program:1"
"""A program that allocates memory of a card, linked to libc like CUDA programs."""
BUILT_NAME = f"localhost/vrampack:{VERSION}"
SHIPPED_NAME = f"ghcr.io/vrampack/vrampack:{VERSION}"
BUILT = REPOSITORY / "build/image/vrampack.tar"
RECIPE_IMAGE = re.compile(r"^ +image: (registry\.example\.com/\S+)$", re.MULTILINE)
WAITS = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]
SOURCES = (
    "Dockerfile",
    ".dockerignore",
    "LICENSE",
    "pyproject.toml",
    "requirements",
    "images",
    "shim/core",
    "shim/preload",
)


def prepare_images(folder: Path, programs: Mapping[str, Path], *, has_product: bool = True) -> list[Path]:
    """The archives to import, rebuilt where their sources changed; the product's only if the node is to have it."""
    folder.mkdir(parents=True, exist_ok=True)
    if has_product:
        _build(folder / "vrampack.sources")
    pause, scheduler, busybox, cuda = (
        folder / f"{name}.tar" for name in ("pause", "kube-scheduler", "busybox", "cuda")
    )
    write(pause, Content({"pause": programs[binaries.PAUSE]}), names=[PAUSE_NAME], entrypoint=["/pause"])
    content = Content({"usr/local/bin/kube-scheduler": programs["kube-scheduler"]}, open_folders=["tmp"])
    write(scheduler, content, names=[SCHEDULER_NAME], entrypoint=["kube-scheduler"])
    write(busybox, _busybox(), names=[BUSYBOX_NAME, *_example_names()], entrypoint=["/bin/sh"])
    write(cuda, _cuda(folder), names=[CUDA_NAME], entrypoint=["/bin/app"])
    stub = folder / "recipes.tar"
    write(stub, _busybox(), names=sorted(_recipe_names()), entrypoint=WAITS)
    return [*([BUILT] if has_product else []), pause, scheduler, busybox, cuda, stub]


def _build(stamp: Path) -> None:
    """`images/build`, unless what lies there was made of these very files."""
    if BUILT.exists() and stamp.exists() and stamp.read_text() == _sources():
        return
    environment = {**os.environ, "VENV": str(Path(sys.prefix))}
    subprocess.run([REPOSITORY / "images/build"], cwd=REPOSITORY, env=environment, check=True)
    stamp.write_text(_sources())


def _sources() -> str:
    """A hash of what the Dockerfile copies, and the file that was made of it."""
    digest = hashlib.sha256()
    roots = [REPOSITORY / name for name in (*SOURCES, *environment_trim.OWN_PACKAGES)]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    for path in files:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return f"{digest.hexdigest()} {BUILT.stat().st_mtime_ns}"


def _busybox() -> Content:
    program = shutil.which("busybox")
    if program is None:
        raise RuntimeError("busybox is not on PATH: install busybox-static")
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    return Content({"bin/busybox": Path(program)}, links, open_folders=["tmp"])


def _cuda(folder: Path) -> Content:
    """What `app` needs of this machine's C library, and busybox beside it."""
    shell, programs = _busybox(), build_fake_driver(folder)
    found = subprocess.run(["ldd", programs.app, programs.smi], capture_output=True, text=True, check=True).stdout
    libraries = {
        path for line in found.splitlines() for path in line.split() if path.startswith("/") and ":" not in path
    }
    files = {path.lstrip("/"): Path(path).resolve() for path in libraries}
    return Content({**shell.programs, **files, "bin/app": programs.app}, shell.links, open_folders=["tmp"])


def _example_names() -> set[str]:
    """The images of the shipped examples: none of CUDA is needed to look at an environment."""
    return {made["image"] for item in load_objects(MANIFESTS / "examples") for made in find_containers(item)}


def _recipe_names() -> set[str]:
    """The images of pods that the recipes show; what runs under these names waits until it is told to end."""
    files = sorted((REPOSITORY / "docs" / "recipes").glob("*/*.yaml"))
    return {image for file in files for image in RECIPE_IMAGE.findall(file.read_text())}
