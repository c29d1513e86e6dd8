"""What the hook reads from a bundle's config.json: whether it has a limit of ours, which one, and whose container it is."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tests.shim.conftest import SOURCES
from tests.shim.oci_configs import CONTAINERD, runtime_config
from tests.shim.probing import run_probe
from vrampack.agent.host.environment import VARIABLES

CRIO = {
    "io.kubernetes.pod.namespace": "ml",
    "io.kubernetes.pod.name": "app-0",
    "io.kubernetes.pod.uid": "u-1",
    "io.kubernetes.container.name": "main",
}
STANDALONE = (
    "ALIYUN_COM_GPU_MEM_CONTAINER=6",
    "ALIYUN_COM_GPU_MEM_DEV=15",
    "ALIYUN_COM_GPU_VISIBLE_DEVICES=0,GPU-b",
    "ALIYUN_COM_GPU_SCHD_WEIGHT=4",
    "CGPU_DISABLE=true",
)
LIMITED = "NVIDIA_GPU_MEMORY_LIMIT=4301"
NAMED = 'limited "ml" "app-0" "u-1" "main"'
UNNAMED = "free - - - -"


CASES = {
    "ours, containerd": (runtime_config("A=1", "NVIDIA_GPU_MEMORY_LIMIT=4301", annotations=CONTAINERD), NAMED),
    "ours, CRI-O": (runtime_config("ALIYUN_COM_GPU_MEM_CONTAINER=4", annotations=CRIO), NAMED),
    "ours, without a pod": (
        runtime_config("ALIYUN_COM_GPU_MEM_CONTAINER=4"),
        'limited - - - - "ALIYUN_COM_GPU_MEM_CONTAINER=4"',
    ),
    "all that counts without Kubernetes, and nothing else": (
        runtime_config("PATH=/bin", *STANDALONE, "ALIYUN_COM_GPU_MEM_IDX=1", root={"path": "rootfs"}),
        " ".join(["limited - - - -", *map(json.dumps, STANDALONE), "root rootfs"]),
    ),
    "in Kubernetes nothing of the environment goes on": (
        runtime_config(*STANDALONE, annotations=CRIO, root={"path": "rootfs"}),
        NAMED,
    ),
    "one word of a pod is enough for that": (
        runtime_config(*STANDALONE, annotations={"io.kubernetes.pod.uid": "u-1"}),
        'limited - - "u-1" -',
    ),
    "an empty variable is none": (
        runtime_config("ALIYUN_COM_GPU_MEM_CONTAINER=4", "CGPU_DISABLE="),
        'limited - - - - "ALIYUN_COM_GPU_MEM_CONTAINER=4"',
    ),
    "a hostile value goes on as it is": (
        runtime_config('ALIYUN_COM_GPU_MEM_CONTAINER="],"ok\n'),
        'limited - - - - "ALIYUN_COM_GPU_MEM_CONTAINER=\\"],\\"ok\\n"',
    ),
    "the longest value": (
        runtime_config("ALIYUN_COM_GPU_MEM_CONTAINER=" + "9" * (2048 - 31)),
        'limited - - - - "ALIYUN_COM_GPU_MEM_CONTAINER=' + "9" * (2048 - 31) + '"',
    ),
    "a value that is too long": (runtime_config("ALIYUN_COM_GPU_MEM_CONTAINER=" + "9" * (2048 - 30)), "bad"),
    "a variable twice": (runtime_config(*STANDALONE, "CGPU_DISABLE=1"), "bad"),
    "twice in Kubernetes does not matter": (
        runtime_config(*STANDALONE, "CGPU_DISABLE=1", annotations=CRIO),
        NAMED,
    ),
    "a root that is no path": (runtime_config(*STANDALONE, root={"path": 1}), "bad"),
    "root twice": ('{"process":{"env":["ALIYUN_COM_GPU_MEM_CONTAINER=4"]},"root":{},"root":{}}', "bad"),
    "one of the two is empty": (
        runtime_config("NVIDIA_GPU_MEMORY_LIMIT=", "ALIYUN_COM_GPU_MEM_CONTAINER=4", annotations=CRIO),
        NAMED,
    ),
    "set, then emptied": (
        runtime_config("NVIDIA_GPU_MEMORY_LIMIT=1", "NVIDIA_GPU_MEMORY_LIMIT=", annotations=CRIO),
        NAMED,
    ),
    "empty is unset": (runtime_config("NVIDIA_GPU_MEMORY_LIMIT=", annotations=CRIO), UNNAMED),
    "without a value": (runtime_config("NVIDIA_GPU_MEMORY_LIMIT"), UNNAMED),
    "another name that starts so": (runtime_config("NVIDIA_GPU_MEMORY_LIMITS=1"), UNNAMED),
    "another name that ends so": (runtime_config("X_NVIDIA_GPU_MEMORY_LIMIT=1"), UNNAMED),
    "the name as a value": (runtime_config("A=NVIDIA_GPU_MEMORY_LIMIT=1"), UNNAMED),
    "the variable elsewhere": (runtime_config(hooks={"env": ["NVIDIA_GPU_MEMORY_LIMIT=1"]}), UNNAMED),
    "a name of escapes": (
        '{"pro\\u0063ess":{"\\u0065nv":["\\u004eVIDIA_GPU_MEMORY_LIMIT=\\u0031","CGPU_DIS\\u0041BLE=1"]}}',
        'limited - - - - "CGPU_DIS\\u0041BLE=1"',
    ),
    "entries that are no strings": (runtime_config(1, None, ["NVIDIA_GPU_MEMORY_LIMIT=1"], {}), UNNAMED),
    "no environment": ('{"process":{}}', UNNAMED),
    "no process": ("{}", UNNAMED),
    "not an object": ("[]", UNNAMED),
    "env is no list": ('{"process":{"env":"NVIDIA_GPU_MEMORY_LIMIT=1"}}', UNNAMED),
    "hostile strings go on as they are": (
        runtime_config("NVIDIA_GPU_MEMORY_LIMIT=1", annotations={**CRIO, "io.kubernetes.pod.name": '","ok":true}\n{"'}),
        'limited "ml" "\\",\\"ok\\":true}\\n{\\"" "u-1" "main"',
    ),
    "process twice": ('{"process":{},"process":{"env":["NVIDIA_GPU_MEMORY_LIMIT=1"]}}', "bad"),
    "env twice": ('{"process":{"env":["NVIDIA_GPU_MEMORY_LIMIT=1"],"env":[]}}', "bad"),
    "an annotation twice": (
        '{"process":{"env":["NVIDIA_GPU_MEMORY_LIMIT=1"]},"annotations":{"io.kubernetes.pod.uid":"","io.kubernetes.pod.uid":""}}',
        "bad",
    ),
    "an annotation that is no string": (
        runtime_config("NVIDIA_GPU_MEMORY_LIMIT=1", annotations={"io.kubernetes.pod.uid": 1}),
        "bad",
    ),
    "a pod annotation of the other runtime's names another container": (
        runtime_config(LIMITED, annotations={**CRIO, "io.kubernetes.cri.container-name": "big"}),
        "bad",
    ),
    "and the other way round": (
        runtime_config(LIMITED, annotations={**CONTAINERD, "io.kubernetes.container.name": "big"}),
        "bad",
    ),
    "it names what the runtime does not": (
        runtime_config(
            LIMITED,
            annotations={
                **{name: value for name, value in CRIO.items() if name != "io.kubernetes.container.name"},
                "io.kubernetes.cri.container-name": "big",
            },
        ),
        "bad",
    ),
    "it says what is so": (runtime_config(LIMITED, annotations={**CRIO, **CONTAINERD}), NAMED),
    "it is no string": (
        runtime_config(LIMITED, annotations={**CONTAINERD, "io.kubernetes.container.name": ["main"]}),
        "bad",
    ),
    "not JSON": ("{", "bad"),
}


@pytest.mark.parametrize(("text", "want"), CASES.values(), ids=CASES)
def test_the_bundle_identifies_the_container(built: Path, text: str, want: str) -> None:
    assert run_probe(built, "config", [text.encode()]) == [want]


def test_the_hook_sends_the_variables_that_the_agent_reads() -> None:
    table = (SOURCES / "variables.h").read_text().partition("#define VARIABLES(X)")[2].partition("\n\n")[0]
    assert tuple(re.findall(r'X\("(\w+)="\)', table)) == VARIABLES


def test_damaged_environments_never_read_past_the_end(built: Path) -> None:
    """20,000 seeded corruptions: the answers do not matter, only the sanitizers do."""
    dice = random.Random(4)
    whole = runtime_config("A=1", *STANDALONE, root={"path": "rootfs"}).encode()
    texts = []
    for _ in range(20_000):
        at = dice.randrange(len(whole))
        texts.append(whole[:at] + bytes([dice.choice(b'",=[]{}\\u0A\0\xff')]) + whole[at + dice.randrange(3) :])
    assert len(run_probe(built, "config", texts)) == len(texts)


def test_every_truncated_config_is_refused(built: Path) -> None:
    text = runtime_config("A=1", "NVIDIA_GPU_MEMORY_LIMIT=4301", annotations=CONTAINERD).encode()
    cuts = [text[:at] for at in range(len(text))]
    assert run_probe(built, "config", cuts) == ["bad"] * len(cuts)


STATES = {
    "runc's": ('{"ociVersion":"1.0.2","id":"c","status":"creating","pid":7,"bundle":"/b"}', "7 /b"),
    "an escaped bundle": ('{"id":"c","pid":7,"bundle":"/b\\u002f\\u00e9"}', "7 /b/é"),
    "no pid": ('{"id":"c","bundle":"/b"}', "bad"),
    "pid 0": ('{"id":"c","pid":0,"bundle":"/b"}', "bad"),
    "a negative pid": ('{"id":"c","pid":-1,"bundle":"/b"}', "bad"),
    "pid as text": ('{"id":"c","pid":"7","bundle":"/b"}', "bad"),
    "a pid with a fraction": ('{"id":"c","pid":7.0,"bundle":"/b"}', "bad"),
    "a pid larger than a long": ('{"id":"c","pid":9223372036854775808,"bundle":"/b"}', "bad"),
    "no bundle": ('{"id":"c","pid":7}', "bad"),
    "a zero in the bundle": ('{"id":"c","pid":7,"bundle":"/b\\u0000/c"}', "bad"),
    "a bundle that is too long": (json.dumps({"id": "c", "pid": 7, "bundle": "/" * 4096}), "bad"),
    "no id": ('{"pid":7,"bundle":"/b"}', "bad"),
    "an id that is no string": ('{"id":1,"pid":7,"bundle":"/b"}', "bad"),
    "not an object": ("[]", "bad"),
}


@pytest.mark.parametrize(("text", "want"), STATES.values(), ids=STATES)
def test_the_state_must_have_pid_bundle_and_id(built: Path, text: str, want: str) -> None:
    assert run_probe(built, "state", [text.encode()]) == [want]
