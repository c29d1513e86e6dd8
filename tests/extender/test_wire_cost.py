"""The cost of reading a body does not depend on what its author wrote: counted in calls and in bytes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from extender.wire.args import LARGE_POD_BYTES, MAX_CACHE_BYTES, ArgsReader, estimate_kept_bytes, has_large_pod
from extender.wire.preemption import read_preemption_args
from tests.support.call_counter import count_calls

MEMORY = "aliyun.com/gpu-mem"
NAMES = [f"node-{number}" for number in range(500)]


def a_pod(*, labels: dict[str, str] | None = None, annotation: str = "", containers: int = 1) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {MEMORY: "4"}}}
    return {
        "metadata": {"name": "train", "uid": "u", "labels": labels or {}, "annotations": {"note": annotation}},
        "spec": {"containers": [{**container, "name": f"c{number}"} for number in range(containers)]},
    }


def args_body(pod: dict[str, Any]) -> bytes:
    return json.dumps({"Pod": pod, "NodeNames": NAMES}).encode()


SPELLINGS = {
    "a label named like a field": a_pod(labels={"Name": "x"}),
    "fields in another letter case": {key.upper(): value for key, value in a_pod().items()},
    "a null where Go reads nothing": {**a_pod(), "status": None},
}


@pytest.mark.parametrize("pod", SPELLINGS.values(), ids=SPELLINGS)
def test_a_pod_seen_before_is_not_read_again_whatever_its_spelling(pod: dict[str, Any]) -> None:
    reader, plain = ArgsReader(MEMORY), ArgsReader(MEMORY)
    body, plain_body = args_body(pod), args_body(a_pod())
    for each, first in ((reader, body), (plain, plain_body)):
        each.read_args(first)
    assert count_calls(reader.read_args, body) == count_calls(plain.read_args, plain_body)


def test_node_names_are_not_folded_with_the_pod() -> None:
    """500 names beside a pod with a label `Name` cost as many calls as none."""
    pod = a_pod(labels={"Name": "x"})
    few = json.dumps({"Pod": pod, "NodeNames": []}).encode()
    ArgsReader(MEMORY).read_args(few)  # the first ever resolves the types
    assert count_calls(ArgsReader(MEMORY).read_args, args_body(pod)) == count_calls(ArgsReader(MEMORY).read_args, few)


def preemption_body(victims: int) -> bytes:
    pods = [{"UID": f"uid-{number}"} for number in range(victims)]
    proposed = {name: {"Pods": pods, "NumPDBViolations": 0} for name in NAMES[:10]}
    return json.dumps({"Pod": a_pod(), "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed}).encode()


def test_victims_are_decoded_without_a_call_for_each() -> None:
    read_preemption_args(preemption_body(1), MEMORY)
    calls = [count_calls(read_preemption_args, preemption_body(victims), MEMORY) for victims in (10, 110)]
    assert calls[1] <= calls[0] + 10, "1,000 victims more"


def test_containers_beyond_the_allowed_number_are_not_read() -> None:
    """100,000 of them cost about the calls of 300; what garbage collection calls meanwhile is counted too."""
    some, many = (args_body(a_pod(containers=number)) for number in (300, 100_000))
    ArgsReader(MEMORY).read_args(some)  # the first ever resolves the types
    calls = [count_calls(ArgsReader(MEMORY).read_args, body) for body in (some, many)]
    assert calls[1] < 2 * calls[0]


def traced_bytes(reader: ArgsReader, bodies: Iterable[bytes]) -> int:
    """What stays in memory after these calls."""
    tracemalloc.start()
    try:
        for body in bodies:
            reader.read_args(body)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept


def test_large_pods_do_not_stay_in_memory() -> None:
    """A scheduler asks about 400 pods of 60 KB, one after the other."""
    bodies = (args_body(a_pod(annotation=f"{number:04d}" * 15_000)) for number in range(400))
    assert traced_bytes(ArgsReader(MEMORY), bodies) < 2e6


@pytest.mark.parametrize("containers", [1, 10, 100])
def test_cached_pods_use_no_more_memory_than_estimated(containers: int) -> None:
    bodies = [args_body(a_pod(annotation=str(number), containers=containers)) for number in range(100)]
    counted = sum(estimate_kept_bytes(ArgsReader(MEMORY).read_args(body)[0]) for body in bodies)
    assert 0.4 * counted < traced_bytes(ArgsReader(MEMORY), bodies) < counted < MAX_CACHE_BYTES


def test_only_a_large_pod_is_read_ahead() -> None:
    """However many nodes are named with it."""
    names = json.dumps({"NodeNames": [f"node-{number:0100}" for number in range(5_000)]})[1:]
    assert not has_large_pod(b'{"Pod":%b,%b' % (json.dumps(a_pod()).encode(), names.replace(": ", ":").encode()))
    assert has_large_pod(args_body(a_pod(annotation='"NodeNames":[' * (LARGE_POD_BYTES // 10))))


def test_a_pod_that_was_read_ahead_is_not_read_again() -> None:
    body, reader = args_body(a_pod(containers=1_500)), ArgsReader(MEMORY)
    want = ArgsReader(MEMORY).read_args(body)
    assert len(list(reader.read_large_pod(body))) == 3
    assert count_calls(reader.read_args, body) < 20
    assert reader.read_args(body) == want
    assert len(list(reader.read_large_pod(body))) == 1


@pytest.mark.parametrize("body", [b"", b"{", b'{"Pod":{"spec":7},"NodeNames":[]}', b'{"Pod":{"Spec":{}}}'])
def test_read_ahead_leaves_errors_to_the_call(body: bytes) -> None:
    assert len(list(ArgsReader(MEMORY).read_large_pod(body))) <= 2
