"""Makes the files of a release, each from the exported sources and nothing else of this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.archive import LIMITS_MB
from release.archives import list_files, rewrite_tar, write_compressed_tar
from release.sources import ReleaseSources

IMAGE_NAMES = {"all": "vrampack", "extender": "vrampack-extender"}
"""By the parts that an image has."""
COMPILERS = {"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}
HOOK_PROGRAMS = ("vrampack-hook", "vrampack-runtime")
IMAGE_LINE = re.compile(r"^[ -]*image: (\S+)$", re.MULTILINE)
REGISTRY = "ghcr.io/vrampack"
"""What the manifests call our images; an imported archive has that name, so nothing has to be pushed to it."""


@dataclass(frozen=True, slots=True)
class ReleaseBuilder:
    """The sources, and the folder into which the files go."""

    sources: ReleaseSources
    folder: Path

    @property
    def version(self) -> str:
        return self.sources.version

    def build_image(self, parts: str, arch: str) -> Path:
        """An OCI archive, by images/build. Raises `CalledProcessError`, also where it is larger than it may be."""
        target = self.folder / f"{IMAGE_NAMES[parts]}-{self.version}-image-{arch}.tar"
        settings = {"ARCH": arch, "PARTS": parts, "OUT": str(target), "NAME": f"{REGISTRY}/{IMAGE_NAMES[parts]}"}
        self._run("images/build", VENV=sys.prefix, REVISION=self.sources.revision, **settings)
        rewrite_tar(target, written_at=self.sources.committed_at)
        return target

    def build_wheel(self) -> None:
        """The Python package, with the setuptools that runs here: the pinned one."""
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(self.folder))
        self._run(sys.executable, "-m", "pip", "wheel", *options, ".")

    def build_plugin(self) -> None:
        """The kubectl plugin as one file, and packed as krew wants it."""
        plugin = self.folder / "kubectl-inspect-cgpu"
        self._run(sys.executable, "-m", "vrampack.cli.kubectl_plugin", str(plugin))
        packed = {"kubectl-inspect_cgpu": plugin, "LICENSE": self.sources.folder / "LICENSE"}
        self._pack(f"kubectl-inspect_cgpu-{self.version}.tar.gz", packed)

    def build_hook(self, arch: str) -> None:
        """The OCI hook and the runtime with it: static programs for nodes."""
        out = self.sources.folder / "build" / arch
        out.mkdir(parents=True)
        self._run("make", "-s", "-C", "shim/hook", "hook", f"OUT={out}", f"CC={COMPILERS[arch]}")
        for name in HOOK_PROGRAMS:
            (out / name).rename(self.folder / f"{name}-{self.version}-linux-{arch}")

    def pack_manifests(self) -> None:
        """What `kubectl apply -k` takes, and the chart where there is one."""
        contents = list_files(self.sources.folder / "manifests", f"vrampack-manifests-{self.version}")
        self._pack(f"vrampack-manifests-{self.version}.tar.gz", contents)
        if self.sources.chart:
            self._pack(f"vrampack-chart-{self.version}.tgz", list_files(self.sources.chart, "vrampack"))

    def write_image_list(self, archs: Sequence[str]) -> None:
        """Every image that the manifests and their examples name: ours with the file that holds it, others as they are pulled elsewhere."""
        folder = self.sources.folder / "manifests"
        files = sorted(path for name in ("rendered", "examples") for path in (folder / name).glob("*.yaml"))
        named = {name for path in files for name in IMAGE_LINE.findall(path.read_text(encoding="utf-8"))}
        others = sorted(name for name in named if not name.startswith(REGISTRY))
        ours = [
            f"{REGISTRY}/{name}:{self.version}\t{name}-{self.version}-image-{arch}.tar"
            for name in IMAGE_NAMES.values()
            for arch in archs
        ]
        lines = [*ours, *(f"{name}\tto be copied by you" for name in others)]
        (self.folder / "images.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _pack(self, name: str, contents: dict[str, Path]) -> None:
        write_compressed_tar(self.folder / name, contents, written_at=self.sources.committed_at)

    def _run(self, *command: str, **settings: str) -> None:
        environment = {**os.environ, "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"SOURCE_DATE_EPOCH": str(self.sources.committed_at), **settings}
        subprocess.run(command, cwd=self.sources.folder, env=environment, check=True)  # noqa: S603 - no shell


def list_parts() -> tuple[str, ...]:
    """Those that an image can have."""
    return tuple(LIMITS_MB)
