"""What bash itself completes with the script, and that zsh gets the same one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vrampack.cli.completion import build_script
from vrampack.cli.main import main

COMPLETIONS = {
    "a command": (["vrampack", "sna"], ["snapshot"]),
    "every command that begins so": (["vrampack", "s"], ["serve", "simulate", "snapshot", "support-bundle"]),
    "an action": (["vrampack", "card", "unc"], ["uncordon"]),
    "an action with its own flags": (["vrampack", "config", "c"], ["check"]),
    "its flags": (["vrampack", "policy", "explain", "--re"], ["--request"]),
    "the flags of a replay": (["vrampack", "simulate", "replay", "--ar"], ["--arrivals"]),
    "a value": (["vrampack", "explain", "pod", "a", "-o", "y"], ["yaml"]),
    "a value behind an equals sign": (["vrampack", "explain", "--output", "=", "j"], ["json"]),
    "a flag after a value": (["vrampack", "explain", "-o", "json", "--kube"], ["--kubeconfig"]),
    "a file, which bash completes itself": (["vrampack", "card", "--config", "x"], []),
    "nothing of an unknown command": (["vrampack", "nope", "-"], []),
}
ASK = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_vrampack
echo "${COMPREPLY[*]}"
"""


def test_bash_completes_commands_flags_and_values() -> None:
    """All in one bash."""
    asked = "".join(f"ask {' '.join(words)}\n" for words, _ in COMPLETIONS.values())
    script = f"set -u\n{build_script()}\nask() {{ {ASK} }}\n{asked}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    answers = dict(zip(COMPLETIONS, map(str.split, done.stdout.splitlines()), strict=True))
    assert answers == {name: want for name, (_, want) in COMPLETIONS.items()}


def test_an_image_without_the_agents_parts_completes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vrampack.cli.agent", None)
    script = build_script()
    assert '"serve --config"' in script
    assert '"agent --config"' not in script


def test_zsh_gets_the_same_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == main(["completion", "zsh"]) == 0
    said = capsys.readouterr().out
    assert said.count(build_script()) == 2
    assert "\n#compdef vrampack\nautoload -U +X bashcompinit && bashcompinit\n" in said
