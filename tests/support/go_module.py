"""Programs that tests build with Go: once for each go.sum, own main and Go version, in a cache outside the tree."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.build_cache import cache_root
from tests.support.build_times import timed_build

BUILD_TIMEOUT_SECONDS = 1500
"""A cold build of the control plane takes about 4 minutes on 2 idle cores; the rest is for a busy machine."""
DOWNLOAD_TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class GoModule:
    """A go.mod with its go.sum, and what is built from it."""

    folder: Path
    cache: str
    """The folder of the cache that its programs share with those of no other module."""
    packages: str
    """The import path of each program's main package up to its name: `./cmd`."""
    stamps: str = ""
    """Linker flags that set the version."""
    mod_file: str = "go.mod"
    """Which requirements: of several releases that are built of the same main packages each has a file of its own."""
    has_c: bool = False
    """Whether some package of it is written in C, which the compiler of the machine takes: its warnings are the package's."""
    toolchain: str = ""
    """The Go that the module asks for where that is newer than this machine's; the Go client downloads it."""

    def build_programs(self, environ: Mapping[str, str], *programs: str) -> Path:
        """The cache folder of these requirements and this Go version, with these programs in it. Raises `RuntimeError` without Go."""
        go = _locate_go(environ, what=" ".join(programs))
        made = cache_root(environ) / self.cache / self._key(go, environ)
        if self._list_missing(made, programs):
            made.mkdir(parents=True, exist_ok=True)
            with timed_build(), (made / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # two suites starting together build once
                if missing := self._list_missing(made, programs):
                    self._build(go, made, missing, environ)
        return made

    def _list_missing(self, made: Path, programs: Iterable[str]) -> list[str]:
        return [name for name in programs if not (made / name).exists()]

    def _key(self, go: str, environ: Mapping[str, str]) -> str:
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            cwd=self.folder,
            env=_environment(environ, self.toolchain),
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
            check=True,
        )
        digest = hashlib.sha256(answer.stdout.encode())
        for source in ((self.folder / self.mod_file).with_suffix(".sum"), *sorted(self.folder.glob("cmd/*/main.go"))):
            digest.update(source.read_bytes())
        return digest.hexdigest()[:16]

    def _build(self, go: str, made: Path, names: list[str], environ: Mapping[str, str]) -> None:
        flags = ["-trimpath", "-mod=readonly", "-ldflags", f"-s -w {self.stamps}".rstrip()]
        if self.mod_file != "go.mod":
            flags.append(f"-modfile={self.mod_file}")
        with tempfile.TemporaryDirectory(dir=made, prefix=".partial-") as partial:
            subprocess.run(
                [go, "build", *flags, "-o", f"{partial}/", *(f"{self.packages}/{name}" for name in names)],
                cwd=self.folder,
                env={
                    **_environment(environ, self.toolchain),
                    "CGO_ENABLED": "1" if self.has_c else "0",
                    "CGO_CFLAGS": "-w",
                },
                timeout=BUILD_TIMEOUT_SECONDS,
                check=True,
            )
            for program in Path(partial).iterdir():
                program.rename(made / program.name)


def locate_sources(folder: Path, module: str, environ: Mapping[str, str], *, toolchain: str = "") -> Path:
    """The `module` that the go.mod in `folder` requires, in Go's own cache: for upstream's manifests. It has the checksum of our go.sum.

    Raises `RuntimeError` without Go.
    """
    answer = subprocess.run(
        [_locate_go(environ, what=module), "mod", "download", "-json", module],
        cwd=folder,
        env=_environment(environ, toolchain),
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
        check=True,
    )
    return Path(json.loads(answer.stdout)["Dir"])


def _environment(environ: Mapping[str, str], toolchain: str) -> Mapping[str, str]:
    return {**environ, "GOTOOLCHAIN": toolchain} if toolchain else environ


def _locate_go(environ: Mapping[str, str], *, what: str) -> str:
    go = shutil.which("go", path=environ.get("PATH"))
    if go is None:
        raise RuntimeError(f"go is not on PATH, and {what} needs Go 1.26")
    return go
