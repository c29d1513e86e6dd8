"""The programs of a hub, installed once for each lock file in a cache outside the tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.build_cache import cache_root
from tests.support.processes import REPOSITORY

REQUIREMENTS = REPOSITORY / "requirements" / "jupyterhub.txt"
PROXY = Path(__file__).parent / "proxy"
PROXY_FILES = ("package.json", "package-lock.json")
INSTALL_SECONDS = 900
DONE = ".done"


@dataclass(frozen=True, slots=True)
class HubPrograms:
    """Where they lie."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    @property
    def proxy(self) -> Path:
        return self.folder / "proxy" / "node_modules" / ".bin" / "configurable-http-proxy"


def install_programs(environ: Mapping[str, str] = os.environ) -> HubPrograms:
    """Install exactly what the lock files name, by pip and npm, unless it is installed. Raises `RuntimeError` without npm."""
    programs = HubPrograms(cache_root(environ) / "jupyterhub" / _key())
    programs.folder.mkdir(parents=True, exist_ok=True)
    with (programs.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two suites starting together install once
        if not (programs.folder / DONE).exists():
            _install(programs, environ)
            (programs.folder / DONE).touch()
    return programs


def _install(programs: HubPrograms, environ: Mapping[str, str]) -> None:
    npm = shutil.which("npm", path=environ.get("PATH"))
    if npm is None:
        raise RuntimeError("npm is not on PATH, and the hub's proxy is installed with it")
    environment = programs.folder / "environment"
    venv.create(environment, with_pip=True, clear=True)
    pip: list[str | Path] = [
        programs.python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--requirement",
        REQUIREMENTS,
    ]
    subprocess.run(pip, env=dict(environ), timeout=INSTALL_SECONDS, check=True)
    proxy = programs.folder / "proxy"
    proxy.mkdir(exist_ok=True)
    for name in PROXY_FILES:
        shutil.copy(PROXY / name, proxy)
    command = [npm, "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=proxy, env=dict(environ), timeout=INSTALL_SECONDS, check=True)


def _key() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in (REQUIREMENTS, *(PROXY / name for name in PROXY_FILES)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
