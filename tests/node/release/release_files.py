"""The files that `make release` has made, used by the commands of docs/releases.md."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import REPOSITORY
from vrampack.cli.version import VERSION

TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """One folder of a version."""

    folder: Path
    version: str

    @classmethod
    def locate(cls) -> ReleaseFiles:
        """Of the version that `VERSION` names, or of this checkout's. Raises `FileNotFoundError` without them."""
        version = os.environ.get("VERSION", VERSION)
        folder = REPOSITORY / "build/release" / version
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: `make release VERSION={version}` makes it")
        return cls(folder, version)

    @property
    def image(self) -> Path:
        return self.folder / f"vrampack-{self.version}-image-amd64.tar"

    @property
    def image_name(self) -> str:
        """As images.txt has it beside the archive."""
        lines = (line.split("\t") for line in (self.folder / "images.txt").read_text().splitlines())
        (name,) = [name for name, archive in lines if archive == self.image.name]
        return name

    @property
    def chart(self) -> Path:
        return self.folder / f"vrampack-chart-{self.version}.tgz"

    def check_sums(self) -> int:
        """How many files match SHA256SUMS; raises if one does not."""
        return len(self._run("sha256sum", "--check", "--ignore-missing", "SHA256SUMS").splitlines())

    def verify_signature(self, cosign: Path) -> None:
        (key,) = self.folder.glob("*.pub")
        options = ("--insecure-ignore-tlog", "--offline")
        bundle = ("--bundle", "SHA256SUMS.sigstore.json")
        self._run(cosign, "verify-blob", "--key", key, *bundle, *options, "SHA256SUMS")

    def unpack_chart(self, folder: Path) -> Path:
        """Where its value files are."""
        return self._unpack(self.chart, folder) / "vrampack" / "values"

    def unpack_examples(self, folder: Path) -> Path:
        name = f"vrampack-manifests-{self.version}"
        return self._unpack(self.folder / f"{name}.tar.gz", folder) / name / "examples"

    def install_wheel(self, folder: Path) -> Path:
        """The command line in a new virtual environment, beside the packages that this one has: no index is asked."""
        (wheel,) = self.folder.glob("*.whl")
        self._run(sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python", "--quiet")
        self._run(*pip, "install", "--no-index", "--no-deps", wheel)
        (packages,) = folder.glob("lib/python*/site-packages")
        # A .pth of that folder itself is not read: the checkout is not in there.
        (packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        return folder / "bin/vrampack"

    def run_plugin(self, kubeconfig: Path, *arguments: str) -> str:
        """What the one file of kubectl's plugin prints."""
        return self._run(self.folder / "kubectl-inspect-cgpu", *arguments, "--kubeconfig", kubeconfig)

    def _run(self, *command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
        return done.stdout

    @staticmethod
    def _unpack(archive: Path, folder: Path) -> Path:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        return folder
