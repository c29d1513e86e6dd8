"""Which line of /proc/PID/cgroup names the container's own cgroup."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.shim.probing import run_probe

POD = "/kubepods/burstable/pod1d3a9a10-0000-4000-8000-000000000001/4f1e"
MIXED = "/system.slice/a.service/kubepods-pod1.slice:cri-containerd:4f1e"
SCOPE = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-4f1e.scope"

CASES = {
    "v2": (f"0::{SCOPE}\n", f"unified {SCOPE}"),
    "v2 without a newline": (f"0::{SCOPE}", f"unified {SCOPE}"),
    "v1": (f"9:name=systemd:{POD}\n4:memory:{POD}\n1:cpu,cpuacct:{POD}\n", f"memory {POD}"),
    "v1 with its controllers together": (f"3:cpu,memory:{POD}\n", f"memory {POD}"),
    "v1 without memory": (f"5:devices:{POD}\n1:name=systemd:{POD}x\n", f"devices {POD}"),
    "systemd's alone": (f"1:name=systemd:{POD}\n", f"systemd {POD}"),
    "hybrid, container in v1": (f"4:memory:{POD}\n0::/\n", f"memory {POD}"),
    "hybrid, container in both": (f"4:memory:{POD}\n0::{POD}\n", f"unified {POD}"),
    "hybrid, unified first": (f"0::{POD}\n4:memory:/\n", f"unified {POD}"),
    "colons in the path": (f"0::{MIXED}\n", f"unified {MIXED}"),
    "an escaped dash in the path": ("0::/a\\x2db.slice\n", "unified /a\\x2db.slice"),
    "another cgroup namespace's view": ("0::/../pod1/4f1e\n", "unified /../pod1/4f1e"),
    "root everywhere": ("4:memory:/\n0::/\n", "bad"),
    "an unknown controller only": (f"7:rdma:{POD}\n", "bad"),
    "memory is not memory2": (f"7:memory2:{POD}\n", "bad"),
    "nothing": ("", "bad"),
    "an empty line": (f"\n0::{POD}\n", "bad"),
    "one colon": ("0:/a\n", "bad"),
    "a path without a slash": ("0::a\n", "bad"),
    "no path": ("0::\n", "bad"),
    "a zero in the path": ("0::/a\0b\n", "bad"),
    "a path that is too long": ("0::/" + "a" * 4095 + "\n", "bad"),
    "the longest path": ("0::/" + "a" * 4094 + "\n", "unified /" + "a" * 4094),
}


@pytest.mark.parametrize(("text", "want"), CASES.values(), ids=CASES)
def test_the_container_s_own_cgroup_is_found(built: Path, text: str, want: str) -> None:
    assert run_probe(built, "cgroup", [text.encode()]) == [want]


def test_damaged_lines_never_read_past_the_end(built: Path) -> None:
    """Every truncation, and 20,000 seeded corruptions: the answers do not matter, only the sanitizers do."""
    dice = random.Random(7)
    whole = f"9:name=systemd:{POD}\n3:cpu,memory:{POD}\n0::{SCOPE}\n".encode()
    texts = [whole[:at] for at in range(len(whole))]
    for _ in range(20_000):
        at = dice.randrange(len(whole))
        texts.append(whole[:at] + bytes([dice.choice(b":,/\n\0a\xff")]) + whole[at + dice.randrange(3) :])
    assert len(run_probe(built, "cgroup", texts)) == len(texts)
