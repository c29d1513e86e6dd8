"""vrampack-runtime: the hook is in every container that is created, and everything else is passed to runc unchanged."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.shim.probing import run_probe

HOOK = {"path": "/hook", "args": ["vrampack-hook"]}
OTHER = {"path": "/other"}
DOCKERS = {"prestart": [OTHER]}

SPLICED: dict[str, tuple[str, object]] = {
    "no hooks": ('{"a":1}', {"a": 1, "hooks": {"createRuntime": [HOOK]}}),
    "nothing at all": ("{}", {"hooks": {"createRuntime": [HOOK]}}),
    "Docker's": (json.dumps({"hooks": DOCKERS, "a": 1}), {"a": 1, "hooks": {**DOCKERS, "createRuntime": [HOOK]}}),
    "no hook in hooks": ('{"hooks":{},"a":[]}', {"a": [], "hooks": {"createRuntime": [HOOK]}}),
    "hooks of nothing": ('{"hooks":null}', {"hooks": {"createRuntime": [HOOK]}}),
    "another there": (
        json.dumps({"hooks": {"createRuntime": [OTHER], **DOCKERS}}),
        {"hooks": {"createRuntime": [HOOK, OTHER], **DOCKERS}},
    ),
    "an empty list": ('{"hooks":{"createRuntime": [ ]}}', {"hooks": {"createRuntime": [HOOK]}}),
    "a list of nothing": ('{"hooks":{"createRuntime":null,"prestart":null}}', {"hooks": {"createRuntime": [HOOK], "prestart": None}}),
    "a name of escapes": ('{"h\\u006foks":{}}', {"hooks": {"createRuntime": [HOOK]}}),
    "white space": (' { "hooks" : { "createRuntime" : [ ] , "b" : 2 } } ', {"hooks": {"createRuntime": [HOOK], "b": 2}}),
}  # fmt: skip
BAD = [
    "",
    "[]",
    '"hooks"',
    "null",
    "{",
    '{"hooks":[]}',
    '{"hooks":1}',
    '{"hooks":{"createRuntime":{}}}',
    '{"hooks":{},"hooks":{}}',
]


@pytest.mark.parametrize(("text", "want"), SPLICED.values(), ids=SPLICED)
def test_the_hook_is_added_and_the_rest_stays(built: Path, text: str, want: object) -> None:
    (spliced,) = run_probe(built, "splice", [text.encode()])
    assert json.loads(spliced) == want


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_configuration_is_left_alone(built: Path, text: str) -> None:
    assert run_probe(built, "splice", [text.encode()]) == ["bad"]


def test_damaged_configurations_never_read_past_the_end(built: Path) -> None:
    """20,000 seeded corruptions: the answers do not matter, the sanitizers do; a spliced text is JSON."""
    dice = random.Random(9)
    whole = json.dumps({"hooks": {"createRuntime": [OTHER], **DOCKERS}, "process": {"env": ["A=1"]}}).encode()
    texts = []
    for _ in range(20_000):
        at = dice.randrange(len(whole))
        texts.append(whole[:at] + bytes([dice.choice(b'",=[]{}\\un: \xff')]) + whole[at + dice.randrange(3) :])
    answers = run_probe(built, "splice", texts)
    for answer in answers:
        assert answer == "bad" or "/hook" in json.dumps(json.loads(answer))


@pytest.fixture
def runtime(built: Path, tmp_path: Path) -> Path:
    """As it is installed; the program that it executes prints its arguments."""
    for name in ("vrampack-runtime", "vrampack-hook"):
        subprocess.run(["cp", built / name, tmp_path / name], check=True, timeout=60)
    shown = tmp_path / "shown"
    shown.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    shown.chmod(0o755)
    return tmp_path / "vrampack-runtime"


def called(runtime: Path, *words: str) -> list[str]:
    command = [str(runtime), "--then", str(runtime.parent / "shown"), *words]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=runtime.parent / "bundle")
    return done.stdout.decode().splitlines()


def hooks(runtime: Path) -> Mapping[str, object] | None:
    found: Mapping[str, object] | None = json.loads((runtime.parent / "bundle" / "config.json").read_text()).get(
        "hooks"
    )
    return found


MAKES = [
    ["create", "--bundle", "BUNDLE", "--pid-file", "p", "c1"],
    ["--root", "create", "--log=x", "--log-format", "json", "--systemd-cgroup", "run", "-b", "BUNDLE", "c1"],
    ["create", "--bundle=BUNDLE", "c1"],
    ["create", "c1"],
]
MAKES_NONE = [
    ["start", "c1"],
    ["state", "create"],
    ["--root", "run", "delete", "--bundle", "BUNDLE"],
    ["--version"],
    [],
]


@pytest.mark.parametrize("words", MAKES, ids=" ".join)
def test_a_container_that_is_made_gets_the_hook(runtime: Path, words: list[str]) -> None:
    config = runtime.parent / "bundle" / "config.json"
    config.parent.mkdir()
    config.write_text('{"ociVersion":"1.0.2"}')
    config.chmod(0o640)
    words = [word.replace("BUNDLE", str(config.parent)) for word in words]
    assert called(runtime, *words) == words
    path = str(runtime.parent / "vrampack-hook")
    assert hooks(runtime) == {"createRuntime": [{"path": path, "args": ["vrampack-hook"]}]}
    assert config.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in config.parent.iterdir()] == ["config.json"]


@pytest.mark.parametrize("words", MAKES_NONE, ids=" ".join)
def test_every_other_command_is_passed_on(runtime: Path, words: list[str]) -> None:
    bundle = runtime.parent / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text("{}")
    words = [word.replace("BUNDLE", str(bundle)) for word in words]
    assert called(runtime, *words) == words
    assert hooks(runtime) is None


def test_no_container_is_created_without_the_hook(runtime: Path) -> None:
    (runtime.parent / "vrampack-hook").unlink()
    done = subprocess.run([runtime, "create", "c1"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"vrampack-hook: No such file or directory" in done.stderr
