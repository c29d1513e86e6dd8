"""Runs last in the build, in the image itself: removes what its base brings beside Python, and imports all of ours.

Importing compiles what our modules need of the standard library, which a base may have without bytecode, and checks an
environment that was made on a machine of another architecture.
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

from images.environment_trim import check_imports

UNUSED_PATTERNS = (
    "usr/local/lib/python3*/site-packages/*",
    "usr/local/lib/python3*/ensurepip",
    "usr/local/bin/pip*",
    "usr/lib/python3*/ensurepip",
    "usr/share/python-wheels",
)


def main(root: Path) -> int:
    """The exit code; raises `ImportError` when the environment lacks something."""
    for pattern in UNUSED_PATTERNS:
        for path in root.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    check_imports()
    # Parts of the standard library that are imported by the first use, here by those that look up their own version.
    metadata.version("vrampack")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path("/")))
