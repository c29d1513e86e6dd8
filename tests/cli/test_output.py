"""How a command ends when stdout is full, when its reader has gone, and when it is interrupted while it still starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vrampack.cli.main import main

COMMANDS_THAT_SAY_SOMETHING = (["version"], ["explain", "--help"])
INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "vrampack.cli.demo.scenario":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
sys.meta_path.insert(0, Interrupt())
from vrampack.cli.main import main
sys.exit(main(["demo"]))
"""


def start(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vrampack.cli", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", COMMANDS_THAT_SAY_SOMETHING, ids=" ".join)
def test_a_full_disk_is_named_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = start(*arguments, stdout=full.fileno())
    name = "vrampack explain" if arguments[0] == "explain" else "vrampack"
    assert done.returncode == 1
    assert done.stderr == f"{name}: cannot write the output: No space left on device\n"


def test_the_demo_ends_quietly_when_its_reader_has_gone(tmp_path: Path) -> None:
    """As `vrampack demo | head -2` does; everything that it started is gone."""
    command = [
        "sh",
        "-c",
        '{ "$0" -m vrampack.cli demo; echo "$?" >&3; } 3>"$1/code" | head -2',
        sys.executable,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (2, "")
    assert (tmp_path / "code").read_text() == "0\n"


def test_ctrl_c_during_imports_exits_130_without_a_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_demo_reports_missing_loopback_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel's own answer where `lo` is down."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("socket.create_connection", refuse)
    assert main(["demo"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vrampack demo: a connection to 127.0.0.1 failed: Network is unreachable. ")
    assert "ip link set lo up" in said.err
