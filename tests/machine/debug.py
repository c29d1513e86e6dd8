"""The kernel that looks for mistakes: Debian's sources of 6.1 with debug.config and nothing else, built here.

Kept by configuration, by the version of the sources and by what is written here: it takes three minutes of two processors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.machine import packages, stock
from tests.machine.cache import cache_key, cached

NAME = "6.1-debug"
CONFIG = Path(__file__).with_name("debug.config")
BUILD_SECONDS = 1800
FOR_MODULES = (
    *("Makefile", ".config", "Module.symvers", "include", "scripts"),
    *("arch/x86/include", "arch/x86/Makefile*", "tools/objtool/objtool"),
)
"""Of the tree that was built: what building a module reads."""


class BuildError(Exception):
    """The kernel cannot be built here."""


def folder() -> Path:
    """vmlinuz, release, and build for modules."""
    version = (stock.folder() / stock.SOURCE).read_text()
    return cached("debug", cache_key(Path(__file__), CONFIG, version), _build)


def _build(into: Path) -> None:
    # Beside it, because memory is what /tmp may be: two gigabytes, for as long as it is built.
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        tree = _unpack(Path(scratch))
        _make(tree, "allnoconfig", f"KCONFIG_ALLCONFIG={CONFIG}")
        _check((tree / ".config").read_text())
        _make(tree, f"-j{os.cpu_count()}", "bzImage", "modules")
        _keep(tree, into)


def _unpack(scratch: Path) -> Path:
    with packages.packages() as found:
        found.unpack(stock.SOURCE, scratch, f"./usr/src/{stock.SOURCE}.tar.xz")
    archive = scratch / "usr" / "src" / f"{stock.SOURCE}.tar.xz"
    subprocess.run(["tar", "-xf", str(archive), "-C", str(scratch)], check=True)
    archive.unlink()
    return scratch / stock.SOURCE


def _make(tree: Path, *words: str) -> None:
    command = ["make", "--silent", *words]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(words)} of the debug kernel:\n{done.stderr.strip()}")


def _check(config: str) -> None:
    """A word that the sources do not know, or whose needs are missing, vanishes without a word."""
    lines = set(config.splitlines())
    wanted = [line for line in CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    missing = [line for line in wanted if line not in lines and not line.endswith("=n")]
    unwanted = [line for line in wanted if line.endswith("=n") and f"{line.removesuffix('n')}y" in lines]
    if missing or unwanted:
        raise BuildError(f"debug.config does not become so: {', '.join(missing + unwanted)}")


def _keep(tree: Path, into: Path) -> None:
    shutil.copy(tree / "arch" / "x86" / "boot" / "bzImage", into / "vmlinuz")
    (into / "release").write_text((tree / "include" / "config" / "kernel.release").read_text().strip())
    for pattern in FOR_MODULES:
        for path in tree.glob(pattern):
            kept_path = into / "build" / path.relative_to(tree)
            kept_path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, kept_path, symlinks=True)
            else:
                shutil.copy(path, kept_path)
