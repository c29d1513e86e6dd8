"""No argument and no file ends a command in a traceback: the exit code is 0, 1 or 2, and a failure says something."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.support.manifests import Json
from vrampack.cli.command_parsers import list_parsers
from vrampack.cli.main import main

PARSERS = list_parsers()
VALUES = ("", "-1", "1e999", "٣", "a/b/c/d", "x" * 5000, "[::]:99999", "--")
NONE = "/nonexistent/file"
ENDS: dict[str, Sequence[str]] = {
    "admission": ["--config", NONE],
    "agent": ["--node-name=n", "--config", NONE],
    "demo": ["--card-mib=none"],
    "simulate": ["--data", NONE],
    "simulate replay": [],
}
"""What ends a command before it begins to serve; `--kubeconfig` for all others."""
POSITIONALS: dict[str, Sequence[str]] = {
    "card": ["list"],
    "config check": [NONE],
    "config schema": ["agent"],
    "explain": ["pod", "a"],
    "limits": ["status", f"--socket={NONE}"],
    "policy explain": ["--request=1"],
    "simulate": ["cards"],
    "simulate replay": [NONE],
}
CONFIGURATION = """
apiVersion: vrampack.dev/v1
kind: ExtenderConfiguration
listen: {verbs: 127.0.0.1:12345}
policy: {default: binpack, allowed: [spread]}
profiles: [{name: serving, policy: spread, users: {namespaces: [a]}}]
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {token: abc}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: n}}]
current-context: c
"""
SNAPSHOT = """
kind: List
items:
- kind: Node
  metadata: {name: n, labels: {a: b}, annotations: {vrampack.dev/cards: "{}"}}
  spec: {taints: [{key: a, effect: NoSchedule}]}
  status: {allocatable: {aliyun.com/gpu-mem: "16"}}
- kind: Pod
  metadata: {name: p, namespace: d, uid: u, annotations: {vrampack.dev/policy: spread}}
  spec:
    tolerations: [{key: a}]
    affinity: {nodeAffinity: {}, podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}
    topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway}]
    containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: "4"}, requests: {cpu: 1}}}]
"""
ARRIVALS = "pod,arrival,lifetime,gpu_mem_gib\na,1,2,3\nb,2,3,4\n"
FILES: dict[str, tuple[str, Sequence[str]]] = {
    "config check": (CONFIGURATION, ["config", "check", "FILE"]),
    "policy show": (CONFIGURATION, ["policy", "show", "--config=FILE"]),
    "policy show --policy": (CONFIGURATION, ["policy", "show", "--policy=FILE"]),
    "serve": (CONFIGURATION, ["serve", "--config=FILE", f"--kubeconfig={NONE}"]),
    "agent": (CONFIGURATION, ["agent", "--config=FILE", "--node-name=n"]),
    "admission": (CONFIGURATION, ["admission", "--config=FILE"]),
    "kubeconfig": (KUBECONFIG, ["card", "list", "--kubeconfig=FILE"]),
    "snapshot": (SNAPSHOT, ["simulate", "replay", "FILE"]),
    "arrivals": (ARRIVALS, ["simulate", "replay", "SNAPSHOT", "--arrivals=FILE"]),
}
"""What is broken, and a command that reads it."""
NO_DOCUMENTS = (
    *(
        b"",
        b"\0",
        b"\xff\xfe\0",
        b"---\na: 1\n---\n",
        b"[" * 400,
        b"- " * 600,
        b"&a [*a]",
        b"a: &a [*a]\nb: *a",
        b"<<: 3",
    ),
    *(b"!!python/object:os.system x", b"{a: b: c}", b"\t- x", b"? [a]\n: b", b"a: 2026-13-99", b"!!int ''", b"null"),
)
JUNK: Sequence[Json] = (
    None,
    True,
    -1,
    1.5,
    "",
    "::",
    [],
    {},
    [[]],
    [None],
    {"a": None},
    "x" * 1000,
    10**400,
    "\0",
    {"1": {}},
)
FILES_OF_A_KIND = 10


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no command finds one of the machine's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", PARSERS)
def test_no_value_of_a_flag_ends_in_a_traceback(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = PARSERS[name]
    flags = [action.option_strings[-1] for action in parser.list_arguments() if action.option_strings]
    usual = ["--kubeconfig", NONE] if "--kubeconfig" in flags and name not in ENDS else ENDS.get(name, ())
    tried = [f"{flag}={value}" for flag in flags if flag != "--help" for value in VALUES]
    for text in (*tried, *flags, *VALUES, "--no-such-flag"):
        run([*name.split(), *usual, *POSITIONALS.get(name, ()), text], capsys)


@pytest.mark.parametrize("name", FILES)
def test_no_broken_file_ends_in_a_traceback(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, command = FILES[name]
    snapshot = tmp_path / "snapshot.yaml"
    snapshot.write_text(SNAPSHOT)
    file = tmp_path / "file"
    for content in break_file(good, Random(name)):
        file.write_bytes(content)
        run([each.replace("FILE", str(file)).replace("SNAPSHOT", str(snapshot)) for each in command], capsys)


def break_file(good: str, random: Random) -> Iterator[bytes]:
    """What is no document, the good one with a field replaced, and its text damaged."""
    yield from (*NO_DOCUMENTS, good.encode()[: len(good) // 2], good.encode("utf-16"))
    document = yaml.safe_load(good)
    for _ in range(FILES_OF_A_KIND):
        if isinstance(document, dict):
            yield json.dumps(replace_field(document, random)).encode()
        at = random.randrange(len(good))
        yield f"{good[:at]}{random.choice('{}[]:,-&*!%')}{good[at + random.randrange(4) :]}".encode()


def replace_field(document: Json, random: Random) -> Json:
    """The document with junk in place of a random field."""
    made = copy.deepcopy(document)
    place = random.choice(list(list_places(made)))
    place[0][place[1]] = random.choice(JUNK)
    return made


def list_places(value: Json) -> Iterator[tuple[Json, Json]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from list_places(inner)


def run(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]  # argparse gives a number
    said = capsys.readouterr()
    assert code in (0, 1, 2), arguments
    assert said.out or said.err, arguments
    assert "Traceback" not in said.err, arguments
