"""The clang static analyzer: seconds of one processor for each file, so as many at once as there are processors.

A file that was found clean before is not analyzed again while all that it includes, the options and clang are the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.support.build_cache import cache_root, fingerprint_of

TIMEOUT_SECONDS = 300
CLANG = "clang"
ANALYZER = ("--analyze", "-Xanalyzer", "-analyzer-output=text")


def run_analyzer(commands: Iterable[Sequence[str]], *, cwd: Path | None = None, copy: Path | None = None) -> list[str]:
    """What the analyzer reports for each of these options and files; nothing for a clean file.

    The last word of each is the file. `-Xanalyzer` precedes each option of the analyzer alone. `copy` is the folder of
    the files if it differs each time.
    """
    left_out = "" if copy is None else str(copy)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [said for said in pool.map(lambda command: _analyze(command, cwd, left_out), commands) if said]


def _analyze(options: Sequence[str], cwd: Path | None, left_out: str) -> str:
    done = _run([CLANG, "-E", *_without_analyzer_options(options)], cwd)
    if done.returncode:
        return done.stderr
    clean = _find_cache() / fingerprint_of(
        _read_version(), " ".join(options[:-1]).replace(left_out, ""), done.stdout.replace(left_out, "")
    )
    if clean.exists():
        return ""
    done = _run([CLANG, *ANALYZER, *options], cwd)
    if done.stderr or done.returncode:
        return done.stderr or f"{options[-1]}: {done.returncode}"
    clean.touch()
    return ""


def _without_analyzer_options(options: Sequence[str]) -> list[str]:
    flags = {at for at, word in enumerate(options) if word == "-Xanalyzer"}
    return [word for at, word in enumerate(options) if at not in flags and at - 1 not in flags]


@cache
def _read_version() -> str:
    return _run([CLANG, "--version"], None).stdout


def _find_cache() -> Path:
    folder = cache_root() / "analyzed"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: Sequence[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, cwd=cwd)
