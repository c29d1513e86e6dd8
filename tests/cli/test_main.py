"""The command line without a service: what it refuses, and with which exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vrampack.cli.main import COMMANDS, main
from vrampack.cli.version import VERSION


def test_misuse_exits_2_with_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "extender.yaml"
    config.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nunit_mib: 0\ndecide: best\n")
    assert main(["serve", "--config", str(config)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.partition(": ")[0] for line in said.err.splitlines()] == ["vrampack", "vrampack"]
    assert f"{config}:3: unit_mib: " in said.err
    assert f"{config}:4: decide.default: found the text 'best'" in said.err


@pytest.mark.parametrize("address", ["nowhere", "0.0.0.0:12345", "127.0.0.1:99999"])
def test_a_bad_address_exits_2(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--listen", address]) == 2
    assert capsys.readouterr().err.startswith("vrampack: command line: listen.verbs: ")


@pytest.mark.parametrize("arguments", [["serve", "--nope"], ["serve", "--log-level", "loud"]], ids=" ".join)
def test_an_unknown_flag_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    said = capsys.readouterr()
    assert (said.out, "usage: vrampack serve" in said.err) == ("", True)


@pytest.mark.parametrize("arguments", [["nope"], []], ids=" ".join)
def test_unknown_command_exits_2_and_lists_the_known_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [name for name in COMMANDS if f"\n  {name} " not in said.err] == []


MISTYPED = {
    "a command": ("inspct", "there is no command 'inspct'; did you mean inspect? `vrampack help` lists all"),
    "an action": ("card corden gpu-0 0", "; did you mean cordon?"),
    "an action with its own flags": ("config chek", "; did you mean check?"),
    "a flag": ("serve --ready-aftr=1", "unrecognized arguments: --ready-aftr=1; did you mean --ready-after?"),
    "a value": ("explain pod a -o yml", "; did you mean yaml?"),
    "nothing near": ("explain pod a -o gold", ")"),
}


@pytest.mark.parametrize(("command", "said"), MISTYPED.values(), ids=MISTYPED)
def test_what_was_mistyped_is_answered_with_what_was_meant(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(command.split())
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]  # argparse gives a number
    assert code == 2
    assert capsys.readouterr().err.endswith(f"{said}\n")


def test_a_dash_is_stdin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "extender.yaml"
    config.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\nunit_mib: 0\n")
    before = os.dup(0)
    given = os.open(config, os.O_RDONLY)
    os.dup2(given, 0)
    try:
        assert main(["config", "check", "-"]) == 1
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(given)
    assert capsys.readouterr().out.startswith("/dev/stdin:3: unit_mib: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([name, "--help"])
    assert raised.value.code == 0
    assert f"usage: vrampack {name} " in capsys.readouterr().out


def test_serve_with_a_missing_kubeconfig_exits_1_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_version_is_the_same_in_this_process_and_in_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    done = subprocess.run([sys.executable, "-m", "vrampack.cli", "version"], capture_output=True, text=True, check=True)
    assert capsys.readouterr().out == done.stdout == f"vrampack {VERSION}\n"


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["serve", "--help"])
    assert raised.value.code == 0
    said = capsys.readouterr().out
    for flag in ("--config", "--kubeconfig", "--context", "--listen", "--health-listen", "--url-prefix", "--log-level"):
        assert flag in said
