"""The files that a suite reads: the table `.ci/inputs`, a copy of the tree with nothing else, and a digest of what is in them.

python3 .ci/inputs.py SUITE     lists them
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from suites import Suite

TABLE = Path(".ci/inputs")
EVERY_SUITE = "every-suite"
"""The section of the table whose files all suites read."""
READ_ME = "README.md"
"""Named by pyproject.toml, so that an installation wants a file there."""


class InputsError(Exception):
    """The table cannot be used; the message names the section or the line, and what to change."""


def read_globs(root: Path, target: str) -> list[str]:
    """Those of every suite, and then its own. Raises `InputsError` for a suite without a section."""
    sections: dict[str, list[str]] = {}
    for line in (root / TABLE).read_text().splitlines():
        words = line.partition("#")[0].split()
        if words and not line[0].isspace():
            globs = sections.setdefault(words[0].removesuffix(":"), [])
        elif words:
            globs += words
    if target not in sections:
        raise InputsError(f"{TABLE} has no section {target}")
    return [*sections.get(EVERY_SUITE, []), *sections[target]]


def list_files(root: Path, target: str) -> list[str]:
    """The paths of a suite's files, sorted. What git ignores is not among them, and what is not yet committed is.

    Raises `InputsError` for a glob that fits no file.
    """
    globs = [
        f":(exclude,glob){glob[1:]}" if glob.startswith("!") else f":(glob){glob}" for glob in read_globs(root, target)
    ]
    # `--others` are those that are not committed yet.
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--error-unmatch", "--", *globs]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputsError(f"{TABLE}, {target}: {done.stderr.splitlines()[0].replace(':(glob)', '')}")
    return sorted({name for name in done.stdout.split("\0") if name and os.path.lexists(root / name)})


def compute_digest(root: Path, suite: Suite) -> str:
    """A hash of paths, modes and contents, and of the variables that the suite is started with."""
    return _hash_files(root, list_files(root, suite.target), suite)


def copy_files(root: Path, suite: Suite, into: Path) -> str:
    """Fill the folder with these files and nothing else. Returns the digest of the copies.

    If README.md is not among them, a placeholder of one line takes its place.
    """
    shutil.rmtree(into, ignore_errors=True)
    names = list_files(root, suite.target)
    for name in names:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, into / name, follow_symlinks=False)
    if not (into / READ_ME).exists():
        (into / READ_ME).write_text(f"{suite.target} does not read this file: {TABLE}\n")
    return _hash_files(into, names, suite)


def _hash_files(root: Path, names: Sequence[str], suite: Suite) -> str:
    digest = hashlib.sha256(repr(sorted(suite.variables.items())).encode())
    for name in names:
        path = root / name
        if path.is_symlink():
            content, kind = str(path.readlink()).encode(), "link"
        else:
            content, kind = path.read_bytes(), "program" if os.access(path, os.X_OK) else "file"
        digest.update(f"{name}\0{kind}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:32]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}\n" for name in list_files(Path.cwd(), sys.argv[1])))
