"""The demo as a process, and an independent reading of the cluster that it keeps running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Output of the demo and its API server: single fields are read, each asserted where it is read."""

WITHIN_SECONDS = 60


def run_demo(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The demo to its end; its files go to `folder`."""
    return subprocess.run(
        _command(arguments),
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
        env=_environment(folder),
    )


def start_demo(*arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """The demo as it begins; its files go to `folder`."""
    return subprocess.Popen(
        _command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(folder)
    )


@contextmanager
def demo_kept_running(
    *arguments: str, folder: Path | None = None, stopped_by: signal.Signals = signal.SIGINT
) -> Iterator[Json]:
    """The demo with `--serve --json`: its document. The demo ends with the block."""
    process = start_demo(*arguments, "--serve", "--json", folder=folder)
    try:
        yield _document(process)
        process.send_signal(stopped_by)
        assert process.wait(WITHIN_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def list_objects(api: str, resource: str) -> list[Json]:
    """What the API server of the demo holds."""
    with urllib.request.urlopen(f"{api}/api/v1/{resource}", timeout=10) as answer:  # noqa: S310 - loopback, plain http
        items: list[Json] = json.load(answer)["items"]
    return items


def _document(process: subprocess.Popen[str]) -> Json:
    """The JSON document, which ends with a line of one brace; the process goes on."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            return json.loads("".join(lines))
    process.wait(WITHIN_SECONDS)
    raise AssertionError(f"the demo ended without a document: {process.stderr.read() if process.stderr else ''}")


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "vrampack.cli", "demo", *arguments]


def _environment(folder: Path | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return kept | {"TMPDIR": str(folder or tempfile.gettempdir())}
