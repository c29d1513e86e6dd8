"""Debian's kernels for clouds, the smallest of theirs: image and headers, unpacked and mended where they lie.

Kept by the month, so that they do not grow old, and by what is written here and in packages.py.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from tests.machine import packages
from tests.machine.cache import cache_key, cached
from tests.machine.packages import Packages

NAMES = ("5.10", "6.1", "6.12")
SOURCE = "linux-source-6.1"


def folder() -> Path:
    """NAME/boot and NAME/usr/src, and the version of the sources that belong to 6.1."""
    month = dt.datetime.now(dt.UTC).strftime("%Y-%m")
    return cached("stock", cache_key(Path(__file__), Path(packages.__file__), month), _fetch)


def _fetch(into: Path) -> None:
    with packages.packages() as found:
        for name in NAMES:
            (into / name).mkdir()
            _unpack(found, name, into / name)
            _mend(into / name)
        (into / SOURCE).write_text(found.version(SOURCE))


def _unpack(found: Packages, name: str, folder: Path) -> None:
    """Image and headers of one kernel, and what the headers need to build a module."""
    headers = found.newest(rf"linux-headers-({re.escape(name)}\.\d.*-cloud-amd64)")
    found.unpack(headers.replace("headers", "image", 1), folder, "./boot/vmlinuz-*")
    found.unpack(headers, folder, "./usr/src/*")
    for needed in found.needed_by(headers):
        if re.match("linux-(headers|kbuild)-", needed):
            found.unpack(needed, folder, "./usr/*")


def _mend(folder: Path) -> None:
    """What is written for /usr/src, and for the compiler that the kernel was built with."""
    (headers,) = (folder / "usr" / "src").glob("linux-headers-*-cloud-amd64")
    makefile, variables = headers / "Makefile", headers / ".kernelvariables"
    # Not where it is now, because that is renamed: where make finds it.
    here = "$(dir $(lastword $(MAKEFILE_LIST)))../"
    makefile.write_text(makefile.read_text().replace("/usr/src/", here))
    variables.write_text(re.sub(r"gcc-\d+", "gcc", variables.read_text()))
    # From 6.12 on there is one, for type information that no test reads and only pahole writes.
    (headers / "vmlinux").unlink(missing_ok=True)
