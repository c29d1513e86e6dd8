"""The files that a suite reads: the table `.ci/inputs`, a digest of what is in them, and a copy of the tree with nothing else.

python3 .ci/inputs.py SUITE     lists them
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from suites import Suite

TABLE = Path(".ci/inputs")
EVERY_SUITE = "every-suite"
"""The section of the table whose files all suites read."""
READ_ME = "README.md"
"""Named by pyproject.toml, so that an installation wants a file there."""


class InputsError(Exception):
    """The table cannot be used; the message names the section or the line, and what to change."""


def read_globs(root: Path, suite: str) -> list[str]:
    """Those of every suite, and then its own. Raises `InputsError` for a suite without a section."""
    sections: dict[str, list[str]] = {}
    for line in (root / TABLE).read_text().splitlines():
        words = line.partition("#")[0].split()
        if words and not line[0].isspace():
            globs = sections.setdefault(words[0].removesuffix(":"), [])
        elif words:
            globs += words
    if suite not in sections:
        raise InputsError(f"{TABLE} has no section {suite}")
    return [*sections.get(EVERY_SUITE, []), *sections[suite]]


def list_files(root: Path, suite: str) -> list[str]:
    """The paths of a suite's files, sorted. What git ignores is not among them, and what is not yet committed is.

    Raises `InputsError` for a glob that fits no file.
    """
    globs = [
        f":(exclude,glob){glob[1:]}" if glob.startswith("!") else f":(glob){glob}" for glob in read_globs(root, suite)
    ]
    # `--others` are those that are not committed yet.
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--error-unmatch", "--", *globs]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputsError(f"{TABLE}, {suite}: {done.stderr.splitlines()[0].replace(':(glob)', '')}")
    return sorted({name for name in done.stdout.split("\0") if name and os.path.lexists(root / name)})


def digest_of(root: Path, suite: Suite) -> str:
    """Of paths, modes and contents, and of the variables that the suite is started with."""
    digest = hashlib.sha256(repr(sorted(suite.variables.items())).encode())
    for name in list_files(root, suite.target):
        path = root / name
        if path.is_symlink():
            content, kind = str(path.readlink()).encode(), "link"
        else:
            content, kind = path.read_bytes(), "program" if os.access(path, os.X_OK) else "file"
        digest.update(f"{name}\0{kind}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:32]


def copy_files(root: Path, suite: str, into: Path) -> None:
    """Make the folder anew, with these files in it. Where README.md is none of them, a file of one line has its place."""
    shutil.rmtree(into, ignore_errors=True)
    for name in list_files(root, suite):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, into / name, follow_symlinks=False)
    if not (into / READ_ME).exists():
        (into / READ_ME).write_text(f"{suite} does not read this file: {TABLE}\n")


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}\n" for name in list_files(Path.cwd(), sys.argv[1])))
