"""Makes the kubectl plugin: `python -m vrampack.cli.kubectl_plugin build/kubectl-inspect-cgpu` writes one executable file.

It contains `cards`, `vrampack/cli/inspect` and their imports, and runs on Python 3.11 or newer. The same sources give the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from vrampack.cli.version import VERSION

ROOT = Path(__file__).parents[2]
SHEBANG = b"#!/usr/bin/env python3\n"
SINGLE_SOURCES = (
    "vrampack/__init__.py",
    "vrampack/cli/__init__.py",
    "vrampack/cli/arguments.py",
    "vrampack/cli/output.py",
)
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold, so that the build time does not change the bytes."""
ZIP_FILE_ATTRIBUTES = 0o644 << 16
EXECUTABLE_MODE = 0o755

MAIN_SOURCE = f"""\
import sys

if sys.version_info < (3, 11):
    sys.stderr.write("kubectl inspect cgpu needs Python 3.11 or newer; this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(1)

from vrampack.cli.inspect.main import run_as_plugin

sys.exit(run_as_plugin("{VERSION}"))
"""
"""The plugin's entry point. Old Pythons can parse it, at least up to the version check."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the plugin to the given path."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        sys.stderr.write("usage: python -m vrampack.cli.kubectl_plugin FILE\n")
        return 2
    build_plugin(Path(given[0]))
    return 0


def build_plugin(target: Path) -> None:
    """Write the plugin atomically: anyone who runs it meanwhile gets the old one or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(_list_contents()):
                entry = zipfile.ZipInfo(name, ZIP_EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = ZIP_FILE_ATTRIBUTES
                archive.writestr(entry, content)
    partial.chmod(EXECUTABLE_MODE)
    partial.replace(target)


def _list_contents() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", MAIN_SOURCE.encode()
    alone = [ROOT / name for name in ("LICENSE", *SINGLE_SOURCES)]
    for path in (*alone, *_list_sources("vrampack/cards"), *_list_sources("vrampack/cli/inspect")):
        yield path.relative_to(ROOT).as_posix(), path.read_bytes()


def _list_sources(package: str) -> Iterator[Path]:
    yield from (ROOT / package).rglob("*.py")


if __name__ == "__main__":
    sys.exit(main())
