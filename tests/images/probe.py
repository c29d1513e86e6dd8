"""Runs inside the image, on its Python and as its user, and prints what it found as JSON. Standard library only."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import IO

WITHIN_SECONDS = 20
UNCHECKED = 1
"""The flag of bytecode that is never compared with its source (PEP 552)."""


def main() -> None:
    """One question, one answer."""
    questions: dict[str, Callable[..., object]] = {"user": user, "writes": writes, "python": python, "serve": serve}
    json.dump(questions[sys.argv[1]](*sys.argv[2:]), sys.stdout)


def user() -> dict[str, object]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "capabilities": [int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Amb")],
        "no_new_privileges": int(status["NoNewPrivs"]),
    }


def writes(*folders: str) -> dict[str, str]:
    """The result of writing a file into each folder."""
    results = {}
    for folder in folders:
        try:
            Path(folder, "written").write_text("x")
            results[folder] = "written"
        except OSError as error:
            results[folder] = os.strerror(error.errno or 0)
    return results


def python(*modules: str) -> dict[str, object]:
    """The interpreter, what is installed, which of the modules can be found, what the commands load uncompiled."""
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    for command in (
        "vrampack.cli.serve",
        "vrampack.cli.serve_embedded",
        "vrampack.cli.admission",
        "vrampack.cli.demo.main",
    ):
        importlib.import_module(command)
    loaded = [spec for module in list(sys.modules.values()) if (spec := getattr(module, "__spec__", None))]
    return {
        "version": platform.python_version(),
        "installed": installed,
        "found": [module for module in modules if importlib.util.find_spec(module)],
        "commands": [name for name in ("pip", "pip3", "gcc", "cc", "ld", "make") if shutil.which(name)],
        "uncompiled": [spec.name for spec in loaded if spec.cached and spec.has_location and not _is_compiled(spec)],
    }


def _is_compiled(spec: ModuleSpec) -> bool:
    """Whether Python takes the bytecode as it is: marked as unchecked, or with the time of its source."""
    if spec.cached == spec.origin:  # a module in C
        return True
    try:
        header = Path(str(spec.cached)).read_bytes()[:16]
    except OSError:
        return False
    flags, seconds, size = struct.unpack("<4xLLL", header)
    source = Path(str(spec.origin)).stat()
    return flags == UNCHECKED or (flags == 0 and (seconds, size) == (int(source.st_mtime), source.st_size))


def serve() -> dict[str, object]:
    """`vrampack serve` beside an API server that is not there: what it answers, how it ends, what it takes."""
    kubeconfig = Path(tempfile.mkdtemp()) / "kubeconfig.json"
    names = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}
    document = {
        "current-context": "x",
        "contexts": [names],
        "clusters": [cluster],
        "users": [{"name": "x", "user": {}}],
    }
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    started_at = time.monotonic()
    with subprocess.Popen(["vrampack", "serve", "--kubeconfig", str(kubeconfig)], stderr=subprocess.PIPE) as process:
        # It says so when its sockets listen; from then on a request waits for its answer.
        log = _until(process.stderr, b" serving ")
        healthz = _status("healthz")
        seconds = time.monotonic() - started_at
        readyz = _status("readyz")
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(WITHIN_SECONDS)
        log += _until(process.stderr, None)
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return {
        "healthz": healthz,
        "readyz": readyz,
        "exit_code": process.returncode,
        "log": log.decode(),
        "start_seconds": round(seconds, 2),
        "resident_mib": int(resident) >> 10,
    }


def _until(lines: IO[bytes] | None, word: bytes | None) -> bytes:
    """The output up to the line with this word, or to the end."""
    said = b""
    for line in lines or ():
        said += line
        if word is not None and word in line:
            break
    return said


def _status(path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:12346/{path}", timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


if __name__ == "__main__":
    main()
