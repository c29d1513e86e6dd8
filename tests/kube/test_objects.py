"""API objects as values of `cards`: what is missing, null, unknown or damaged, and what a reference is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.builders import UNIT_MIB
from vrampack.cards.node import CardFacts
from vrampack.cards.pod import Pod
from vrampack.cards.records import Record
from vrampack.cards.request import ContainerSpec
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.objects import NodeObject, PodObject, PodSpec, build_container_specs, to_node, to_pod

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"

Object = dict[str, Any]  # Any: raw API objects


def pod_of(body: object) -> Pod:
    return to_pod(msgspec.json.decode(json.dumps(body), type=PodObject))


def asking(quantity: object = "4", **container: object) -> Object:
    return {"name": "main", "resources": {"limits": {MEMORY: quantity}}, **container}


def specs_of(**spec: object) -> list[ContainerSpec]:
    return build_container_specs(msgspec.json.decode(json.dumps(spec), type=PodSpec), MEMORY)


WHOLE_POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "app-0",
        "namespace": "ml",
        "uid": "u-1",
        "resourceVersion": "77",
        "labels": {"app": "x"},
        "annotations": {"vrampack.dev/allocation": '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4}]}'},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {"nodeName": "gpu-0", "priority": 7, "containers": [asking(image="x")], "volumes": [{"name": "v"}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "lastProbeTime": None}]},
}


def test_a_pod_with_all_its_fields() -> None:
    pod = pod_of(WHOLE_POD)
    assert (pod.uid, pod.namespace, pod.name, pod.node_name, pod.priority) == ("u-1", "ml", "app-0", "gpu-0", 7)
    assert pod.request is not None
    assert pod.request.card_request.units == 4
    assert isinstance(pod.record, Record)
    assert not pod.is_terminating
    assert not pod.is_finished


EMPTY: dict[str, Object] = {
    "nothing": {},
    "empty parts": {"metadata": {}, "spec": {}, "status": {}},
    "null lists": {
        "metadata": {"labels": None, "annotations": None, "deletionTimestamp": None},
        "spec": {"containers": None, "initContainers": None, "nodeName": None, "priority": None},
        "status": {"phase": None},
    },
    "containers of nulls": {"spec": {"containers": [{"resources": None, "env": None, "restartPolicy": None}, {}]}},
    "resources of nulls": {"spec": {"containers": [{"resources": {"limits": None, "requests": None}}]}},
    "other resources": {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": 1}}}]}},
}


@pytest.mark.parametrize("body", EMPTY.values(), ids=EMPTY)
def test_what_is_missing_or_null_is_empty(body: Object) -> None:
    assert pod_of(body) == Pod("", "", "")


PHASES = {"Pending": False, "Running": False, "Unknown": False, "": False, "Succeeded": True, "Failed": True}


@pytest.mark.parametrize(("phase", "is_finished"), PHASES.items())
def test_only_a_pod_that_ended_is_finished(phase: str, is_finished: bool) -> None:  # noqa: FBT001 - a table
    assert pod_of({"status": {"phase": phase}}).is_finished == is_finished


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    assert pod_of({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}).is_terminating


AMOUNTS: dict[str, tuple[object, int, str]] = {
    "a text": ("4", 4, ""),
    "a number": (4, 4, ""),
    "a number with a fraction of nothing": (4.0, 4, ""),
    "a text with a suffix": ("4k", 4000, ""),
    "a number of thousands": (1_000, 1000, ""),
    "a negative number": (-4, 0, "'-4' is negative"),
    "a fraction": (1.5, 0, "'1.5' is not a whole number"),
    "yes": (True, 0, "'true' is not a quantity"),
    "a list": ([4], 0, "'[4]' is not a quantity"),
    "null": (None, 0, "'null' is not a quantity"),
    "an object": ({}, 0, "'{}' is not a quantity"),
}


@pytest.mark.parametrize(("amount", "units", "words"), AMOUNTS.values(), ids=AMOUNTS)
def test_quantities_in_any_form(amount: object, units: int, words: str) -> None:
    ask = pod_of({"spec": {"containers": [asking(amount)]}}).request
    assert ask is not None
    assert ask.card_request.units == units
    assert words in ask.problem
    assert bool(words) == bool(ask.problem)


RAW_AMOUNTS = [b"1e999", b"-1e999", b'"\xff"', b"123456789012345678901234567890", b'"\\u00e9"', b"[" * 500 + b"]" * 500]


@pytest.mark.parametrize("raw", RAW_AMOUNTS, ids=lambda raw: ascii(raw[:20]))
def test_an_undecodable_amount_is_a_problem_of_its_pod_only(raw: bytes) -> None:
    limits = b'{"limits":{"aliyun.com/gpu-mem":' + raw + b"}}"
    body = b'{"spec":{"containers":[{"name":"main","env":' + raw + b',"resources":' + limits + b"}]}}"
    pod = msgspec.json.decode(body, type=PodObject)
    ask = to_pod(pod).request
    assert ask is not None
    assert ask.problem
    assert not build_container_specs(pod.spec, MEMORY)[0].has_reference


def test_requests_count_where_limits_are_missing() -> None:
    by_requests = {"name": "a", "resources": {"requests": {MEMORY: "4"}}}
    both = {"name": "b", "resources": {"requests": {MEMORY: "4"}, "limits": {MEMORY: "4"}}}
    assert [spec.quantity for spec in specs_of(containers=[by_requests, both])] == ["4", "4"]


def test_containers_are_read_with_kind_and_index_init_containers_first() -> None:
    specs = specs_of(
        containers=[{"name": "web"}, asking(name="gpu")],
        initContainers=[asking(name="once"), asking(name="stays", restartPolicy="Always"), {"name": "quiet"}],
    )
    assert [(spec.name, spec.kind, spec.index) for spec in specs] == [
        ("once", "init", 0),
        ("stays", "sidecar", 1),
        ("gpu", "main", 1),
    ]


def test_a_restart_policy_makes_no_sidecar_of_a_container() -> None:
    assert [spec.kind for spec in specs_of(containers=[asking(restartPolicy="Always")])] == ["main"]


PATH = "metadata.annotations['visible-devices.vrampack.dev/main']"


def from_field(path: object, name: str = VISIBLE) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


REFERENCES: dict[str, tuple[object, bool]] = {
    "the container's own annotation": ([from_field(PATH)], True),
    "among others": ([{"name": "A", "value": "1"}, from_field(PATH), {"name": "B", "value": "2"}], True),
    "no environment": (None, False),
    "an empty one": ([], False),
    "a literal": ([{"name": VISIBLE, "value": "GPU-0"}], False),
    "another container's annotation": ([from_field(PATH.replace("main", "other"))], False),
    "another annotation": ([from_field("metadata.annotations['visible-devices.example.com/main']")], False),
    "the limit": ([from_field("metadata.annotations['limit-mib.vrampack.dev/main']")], False),
    "double quotes": ([from_field(PATH.replace("'", '"'))], False),
    "a longer name": ([from_field(PATH.replace("main", "main2"))], False),
    "spaces": ([from_field(PATH + " ")], False),
    "another variable": ([from_field(PATH, "NVIDIA_VISIBLE_DEVICE")], False),
    "another source": ([{"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}], False),
    "no source": ([{"name": VISIBLE, "valueFrom": None}], False),
    "no path": ([from_field("")], False),
    "a path of numbers": ([from_field(7)], False),
    "no list": ({"name": VISIBLE}, False),
    # of two entries of one name the container gets the last
    "a literal afterwards": ([from_field(PATH), {"name": VISIBLE, "value": "all"}], False),
    "a literal before": ([{"name": VISIBLE, "value": "all"}, from_field(PATH)], True),
}


@pytest.mark.parametrize(("env", "want"), REFERENCES.values(), ids=REFERENCES)
def test_only_a_reference_to_the_containers_own_annotation_counts(env: object, want: bool) -> None:  # noqa: FBT001 - a table
    (spec,) = specs_of(containers=[asking(env=env)])
    assert spec.has_reference == want


def node_of(body: object) -> Any:  # noqa: ANN401 - a reading, looked at field by field
    decoded = msgspec.json.decode(json.dumps(body), type=NodeObject)
    return to_node(decoded, unit_mib=UNIT_MIB, resource=MEMORY, count_resource=COUNT)


def test_a_node_with_our_annotation_is_read_with_its_address() -> None:
    cards = '{"v":1,"unit_mib":1024,"cards":[{"uuid":"GPU-0","index":0,"memory_mib":16130,"units":15}]}'
    addresses = [{"type": "Hostname", "address": "gpu-0"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    reading = node_of(
        {
            "metadata": {"name": "gpu-0", "annotations": {"vrampack.dev/cards": cards}},
            "status": {"addresses": addresses},
        }
    )
    assert reading.problems == ()
    assert (reading.facts.name, reading.facts.address) == ("gpu-0", "10.0.0.1")
    assert reading.facts.cards == (CardFacts(0, 15, 16130, "GPU-0"),)


@pytest.mark.parametrize("amounts", [{MEMORY: "30", COUNT: "2"}, {MEMORY: 30, COUNT: 2}], ids=["texts", "numbers"])
def test_a_legacy_node_is_read_from_what_it_advertises(amounts: Object) -> None:
    facts = node_of({"metadata": {"name": "old"}, "status": {"allocatable": {**amounts, "cpu": "8"}}}).facts
    assert facts.legacy
    assert [card.units for card in facts.cards] == [15, 15]


EMPTY_NODES: list[Object] = [
    {},
    {"metadata": {"annotations": None}, "status": {"allocatable": None, "addresses": None}},
]


@pytest.mark.parametrize("body", EMPTY_NODES)
def test_a_node_without_cards_is_not_reported_as_a_problem(body: Object) -> None:
    reading = node_of(body)
    assert (reading.facts.cards, reading.problems) == ((), ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([MEMORY, "limits", "env", "name", "valueFrom", "fieldRef"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@PATIENT
@given(st.binary(max_size=20) | JSON.map(lambda value: json.dumps(value).encode()))
@example(b"[null]")
@example(b'[{"type": null}]')
@example(b'"\xff"')
@example(b"1e999")
@example(b"[" * 3000 + b"]" * 3000)
def test_an_object_is_either_rejected_or_readable_in_full(raw: bytes) -> None:
    """Whatever bytes are in the place of what is decoded only where it is needed: after decoding nothing raises."""
    limits = b'{"limits":{"aliyun.com/gpu-mem":' + raw + b"}}"
    spec = b'{"containers":[{"name":"main","env":' + raw + b',"resources":' + limits + b'}],"volumes":' + raw
    spec += b',"resourceClaims":' + raw + b',"schedulingGroup":' + raw + b"}"
    body = b'{"spec":' + spec + b',"status":{"conditions":' + raw + b"}}"
    node = b'{"metadata":{"name":"n"},"status":{"allocatable":{"aliyun.com/gpu-mem":' + raw + b"}}}"
    try:
        pod_object, node_object = msgspec.json.decode(body, type=PodObject), msgspec.json.decode(node, type=NodeObject)
    except UNDECODABLE:
        return
    to_pod(pod_object)
    to_node(node_object, unit_mib=UNIT_MIB, resource=MEMORY, count_resource=COUNT)
