"""The files of one commit in a folder of their own, with the modes and times that every machine would give them.

What is built of it depends on no checkout: neither its path, nor its umask, nor what lies in it uncommitted.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml


class ReleaseError(Exception):
    """A release cannot be made of this; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ReleaseSources:
    """An exported commit."""

    folder: Path
    revision: str
    committed_at: int  # seconds since 1970: the time that every file of the release has

    @property
    def version(self) -> str:
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return str(project["version"])

    @property
    def chart(self) -> Path | None:
        folder = self.folder / "charts/vrampack"
        return folder if folder.is_dir() else None


def export_commit(repository: Path, folder: Path) -> ReleaseSources:
    """Write the files of HEAD into the folder. Raises `CalledProcessError` where that is no repository."""
    revision, committed_at = _git(repository, "log", "-1", "--format=%H %ct").decode().split()
    with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")
    sources = ReleaseSources(folder, revision, int(committed_at))
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (sources.committed_at, sources.committed_at))
    return sources


def check_versions(sources: ReleaseSources, version: str) -> None:
    """Raises `ReleaseError` unless the package and the chart are of this version."""
    found = {"pyproject.toml": sources.version}
    if sources.chart:
        chart = yaml.safe_load((sources.chart / "Chart.yaml").read_text(encoding="utf-8"))
        found |= {"charts/vrampack/Chart.yaml: version": chart["version"], "its appVersion": chart["appVersion"]}
    other = [f"{name} says {said}" for name, said in found.items() if str(said) != version]
    if other:
        raise ReleaseError(f"a release {version} cannot be made: {', '.join(other)}; commit the same version there")


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=True).stdout  # noqa: S603, S607 - of PATH
