"""Runs pytest repeatedly, each time in a process of its own that need not import what no row breaks.

    python -m tests.mutations.forked_runs

Libraries are imported once, here; the product and its tests are imported in each fork, as their files are at that time.
A line of standard input is a run (`PytestRun` as JSON), and its exit code the line of the answer.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence

import pytest

LIBRARIES = (
    "_hypothesis_pytestplugin",
    "aiohttp",
    "cachetools",
    "fastapi",
    "google.protobuf",
    "grpc.aio",
    "hypothesis",
    "kubernetes.aio.client",
    "kubernetes.aio.config",
    "msgspec",
    "prometheus_client",
    "pydantic",
    "pynvml",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "uvicorn",
    "yaml",
)
OURS = ("extender", "policies", "vrampack")


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in OURS)
    if loaded or threading.active_count() > 1:
        raise RuntimeError(f"a fork would share {loaded} or {threading.enumerate()}")
    for line in sys.stdin:
        run = json.loads(line)
        sys.stdout.write(f"{_run_forked(run['arguments'], run['output'], run['seconds'])}\n")
        sys.stdout.flush()


def _run_forked(arguments: Sequence[str], output: str, seconds: float) -> int:
    """The exit code, or the negative number of the signal that ended it: SIGKILL where it took too long."""
    pid = os.fork()
    if not pid:
        _become_pytest(arguments, output)
    descriptor = os.pidfd_open(pid)
    ended, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become_pytest(arguments: Sequence[str], output: str) -> None:
    """Does not return, whatever happens: a second server would take the next runs."""
    try:
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for standard, opened in ((0, os.open(os.devnull, os.O_RDONLY)), (1, written), (2, written)):
            os.dup2(opened, standard)
        code = int(pytest.main(list(arguments)))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    finally:
        os._exit(int(pytest.ExitCode.INTERNAL_ERROR))


if __name__ == "__main__":
    main()
