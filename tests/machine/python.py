"""Our Python interpreter in a virtual machine, with the modules that the programs of a test import.

    files = python_files(["vrampack.cli.agent", "vrampack.agent.host.agent"])
    with VirtualMachine(kernel, files=files, memory_mib=1024) as machine:
        machine.run(PYTHON, "-m", "vrampack.cli", "agent", "--standalone", start=Start(env=ENVIRONMENT))

The files are found by importing the modules on the host. Modules that are imported lazily must be named.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.machine.archive import Content

REPOSITORY = Path(__file__).parents[2]
HOME = "/python"
PYTHON = f"{HOME}/bin/python3"
SITE = "/site"
OUR_CODE = "/vrampack"
LIBRARIES = "/lib/x86_64-linux-gnu"
ENVIRONMENT: Mapping[str, str] = {
    "PYTHONHOME": HOME,
    "PYTHONPATH": f"{OUR_CODE}:{SITE}",
    "PYTHONDONTWRITEBYTECODE": "1",
}
FOUND = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps([module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]))
"""
ALWAYS = ("encodings.idna", "encodings.latin_1", "runpy", "traceback", "concurrent.futures.thread")
"""Imported lazily by Python itself."""
IMPORT_SECONDS = 60


def python_files(modules: Sequence[str]) -> dict[str, Content]:
    """For `VirtualMachine(files=..)`: by their path in the machine. Of our own packages all files are included."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = {
        Path(sysconfig.get_path("purelib")): SITE,
        Path(sysconfig.get_path("platstdlib")): f"{HOME}/lib/{version}",
        Path(sysconfig.get_path("stdlib")): f"{HOME}/lib/{version}",
        REPOSITORY: OUR_CODE,
    }
    files: dict[str, Content] = {PYTHON: Path(sys.executable).resolve()}
    for path in _with_caches(_imported(modules)):
        place = next(folder for folder in places if path.is_relative_to(folder))
        files[f"{places[place]}/{path.relative_to(place)}"] = path
    for path in [each for each in files.values() if isinstance(each, Path)]:
        if path.suffix == ".so" or path.parent.name == "bin":
            files |= libraries(path)
    return files


def libraries(program: Path) -> dict[str, Content]:
    """The shared libraries of this program."""
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    found: dict[str, Content] = {}
    for path in map(Path, re.findall(r"(?:=> |^\s*)(/\S+) \(", said, re.MULTILINE)):
        found[str(path) if path.name.startswith("ld-") else f"{LIBRARIES}/{path.name}"] = path.resolve()
    return found


@cache
def _imported_once(modules: tuple[str, ...]) -> tuple[Path, ...]:
    command = [sys.executable, "-c", FOUND, *ALWAYS, *modules]
    said = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=IMPORT_SECONDS, check=True
    ).stdout
    return tuple(map(Path, json.loads(said)))


def _imported(modules: Sequence[str]) -> Iterable[Path]:
    found = _imported_once(tuple(modules))
    ours = {path.relative_to(REPOSITORY).parts[0] for path in found if _is_ours(path)}
    return [*found, *(path for room in sorted(ours) for path in (REPOSITORY / room).rglob("*.py"))]


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(REPOSITORY) and not path.is_relative_to(sysconfig.get_path("purelib"))


def _with_caches(paths: Iterable[Path]) -> Iterator[Path]:
    """With their .pyc files: compiling would be a third of the start."""
    for path in dict.fromkeys(paths):
        yield path
        compiled = Path(importlib.util.cache_from_source(str(path))) if path.suffix == ".py" else None
        if compiled and compiled.is_file():
            yield compiled
