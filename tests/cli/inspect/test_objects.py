"""The plugin's own decoder of API objects agrees with the extender's, on good objects and on damaged ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cli.inspect.clusters import CLUSTERS
from tests.cli.inspect.lists import list_page
from tests.support.random_clusters import random_cluster
from vrampack.cards import well_known
from vrampack.cli.inspect.api_objects import (
    decode_items,
    decode_node,
    decode_pod,
    describe_object,
    read_continue_token,
    to_node,
)
from vrampack.cli.inspect.errors import DamagedObjectError
from vrampack.kube import objects as kube
from vrampack.kube.decoding import UNDECODABLE

DAMAGED = "damaged"

JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, 7, -1, 1.5, 2.0, "", "x", "4", [], ["x"], {}, {"x": None}, [None], [{}], {"name": 5}]
)
JUNK_VALUES: tuple[object, ...] = (None, 7, "x", True, [], {}, 1.5, [None])
PATHS: list[tuple[str | int, ...]] = [
    ("metadata",),
    *[
        ("metadata", key)
        for key in ("name", "namespace", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
    ],
    ("metadata", "labels", well_known.COUNT_LABEL),
    ("metadata", "annotations", well_known.ALLOCATION),
    ("metadata", "annotations", well_known.NODE_CARDS),
    ("spec",),
    *[("spec", key) for key in ("nodeName", "priority", "schedulerName", "schedulingGates")],
    *[("spec", key) for key in ("containers", "initContainers")],
    *[("spec", "containers", 0, key) for key in ("name", "resources", "restartPolicy", "env")],
    *[("spec", "containers", 0, "resources", key) for key in ("limits", "requests")],
    *[("spec", "containers", 0, "resources", key, well_known.MEMORY_RESOURCE) for key in ("limits", "requests")],
    *[("spec", "containers", 0, "env", 0, key) for key in ("name", "valueFrom")],
    ("spec", "containers", 0, "env", 0, "valueFrom", "fieldRef"),
    ("spec", "containers", 0, "env", 0, "valueFrom", "fieldRef", "fieldPath"),
    ("spec", "initContainers", 0, "restartPolicy"),
    ("status",),
    ("status", "phase"),
    *[("status", key) for key in ("allocatable", "addresses")],
    *[("status", "allocatable", name) for name in (well_known.MEMORY_RESOURCE, well_known.COUNT_RESOURCE)],
    *[("status", "addresses", 0, key) for key in ("type", "address")],
    ("status", "addresses", 0),
]


def a_wired_container() -> dict[str, Any]:
    path = "metadata.annotations['visible-devices.vrampack.dev/main']"
    return {
        "name": "main",
        "resources": {"limits": {well_known.MEMORY_RESOURCE: "4"}, "requests": {well_known.MEMORY_RESOURCE: "4"}},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}],
    }


def a_full_object() -> dict[str, Any]:
    """A node and a pod at once: each decoder takes its own part."""
    return {
        "metadata": {
            "name": "x",
            "namespace": "ml",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {well_known.COUNT_LABEL: "2"},
            "annotations": {well_known.ALLOCATION: '{"v":1,"cards":[{"uuid":"GPU-0","index":0,"units":4}]}'},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "n",
            "priority": 3,
            "schedulerName": "vrampack",
            "schedulingGates": [{"name": "example.com/quota"}],
            "containers": [a_wired_container()],
            "initContainers": [{**a_wired_container(), "name": "proxy", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Running",
            "allocatable": {well_known.MEMORY_RESOURCE: "30", well_known.COUNT_RESOURCE: "2"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}],
        },
    }


def ours(body: bytes, kind: str) -> object:
    value = json.loads(body)
    try:
        return decode_pod(value) if kind == "pod" else to_node(decode_node(value), unit_mib=1024)
    except DamagedObjectError:
        return DAMAGED


def theirs(body: bytes, kind: str) -> object:
    try:
        if kind == "pod":
            return kube.to_pod(msgspec.json.decode(body, type=kube.PodObject))
        node = msgspec.json.decode(body, type=kube.NodeObject)
        return kube.to_node(
            node, unit_mib=1024, resource=well_known.MEMORY_RESOURCE, count_resource=well_known.COUNT_RESOURCE
        )
    except UNDECODABLE:
        return DAMAGED


def assert_same(value: object, *, case: object = "") -> None:
    """`case` says which of many it was."""
    body = json.dumps(value, separators=(",", ":")).encode()
    for kind in ("pod", "node"):
        assert ours(body, kind) == theirs(body, kind), f"{kind} of {case}"


def test_a_full_object_is_read_in_full() -> None:
    """What the other tests damage is no empty shell: every field of it is seen."""
    pod = decode_pod(a_full_object())
    assert (pod.name, pod.namespace, pod.uid, pod.node_name, pod.priority) == ("x", "ml", "u", "n", 3)
    assert (pod.is_terminating, pod.is_finished) == (True, False)
    assert pod.request is not None
    assert (pod.request.card_request.count, pod.request.card_request.units, len(pod.request.containers)) == (2, 4, 2)
    node = decode_node(a_full_object())
    assert (node.address, node.allocatable[well_known.MEMORY_RESOURCE]) == ("10.0.0.1", "30")
    assert_same(a_full_object())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_both_decoders_agree_on_one_damaged_field(path: tuple[str | int, ...]) -> None:
    for junk in JUNK_VALUES:
        assert_same(damaged(a_full_object(), path, junk), case=junk)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), JUNK), max_size=4))
@example([(("spec", "containers", 0, "resources", "limits", well_known.MEMORY_RESOURCE), {"a": [1, "ü"]})])
@example([(("status", "addresses", 0, "address"), "")])
def test_both_decoders_agree_on_several_damaged_fields(spoils: list[tuple[tuple[str | int, ...], object]]) -> None:
    value = a_full_object()
    for path, junk in spoils:
        value = damaged(value, path, junk)
    assert_same(value)


def test_both_decoders_agree_on_random_clusters() -> None:
    for seed in range(300):
        cluster = random_cluster(seed)
        for value in (*cluster.nodes, *cluster.pods, cluster.asking):
            assert_same(value, case=seed)


def test_both_decoders_agree_on_golden_clusters() -> None:
    for objects in CLUSTERS.values():
        for value in (*objects.nodes, *objects.pods):
            assert_same(value)


def test_both_decoders_agree_on_too_many_containers_even_with_a_damaged_one() -> None:
    value = a_full_object()
    value["spec"]["containers"] *= 300
    request = decode_pod(value).request
    assert request is not None
    assert "more than 256 containers" in request.problem
    assert_same(value)
    assert_same(damaged(value, ("spec", "containers", 299, "name"), 7))


@pytest.mark.parametrize("value", [None, 7, "x", [], [{}]], ids=repr)
def test_both_decoders_refuse_a_non_object(value: object) -> None:
    assert_same(value)
    assert describe_object(value) == "without a name"


NAMED = {
    "ml/x": {"metadata": {"namespace": "ml", "name": "x"}},
    "x": {"metadata": {"name": "x", "namespace": 5}},
    "without a name": {"metadata": [1]},
}


@pytest.mark.parametrize(("name", "value"), NAMED.items(), ids=NAMED)
def test_a_damaged_object_is_named_as_far_as_possible(name: str, value: object) -> None:
    assert describe_object(value) == name


PAGES = {
    # what the API server writes: the items last
    "first": (list_page("pods", [{"metadata": {"name": '"items":'}}], "t1"), "t1", 1),
    "last": (list_page("pods", [{}, {}]), "", 2),
    "empty": (list_page("nodes", []), "", 0),
    "items first": (b'{"items":[{}],"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t2"}}', "t2", 1),
    "the kind last": (b'{"metadata":{"resourceVersion":"7","continue":"t2"},"items":[{}],"kind":"List"}', "t2", 1),
    "null items": (b'{"kind":"List","metadata":{"resourceVersion":"7","continue":""},"items":null}', "", 0),
    "spaced": (
        b'{ "kind" : "List", "metadata" : {"resourceVersion":"7","continue":"t3"} ,\n "items" : [ {} ] }',
        "t3",
        1,
    ),
    "an annotation with the word": (
        b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"t4","x":"\\"items\\":"},"items":[]}',
        "t4",
        0,
    ),
}


@pytest.mark.parametrize(("body", "token", "count"), PAGES.values(), ids=PAGES)
def test_a_page_has_items_and_a_token(body: bytes, token: str, count: int) -> None:
    assert (read_continue_token(body), len(decode_items(body))) == (token, count)


def test_continue_token_is_read_without_decoding_the_items() -> None:
    body = b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"t5"},"items":[oops'
    assert read_continue_token(body) == "t5"


NO_LISTS = {
    "nothing": b"{}",
    "a Status": b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":503}',
    "a Status with a version": b'{"kind":"Status","metadata":{"resourceVersion":"7"},"items":[]}',
    "a list without a version": b'{"kind":"PodList","metadata":{},"items":[]}',
    "a list without a kind": b'{"metadata":{"resourceVersion":"7"},"items":[]}',
    "metadata of a number": b'{"kind":"List","metadata":7,"items":[]}',
    "a token of a number": b'{"kind":"List","metadata":{"resourceVersion":"7","continue":7},"items":[]}',
}


@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS)
def test_an_answer_that_is_no_list_of_the_api_server_is_refused(body: bytes) -> None:
    """The same answers as the reflector refuses."""
    with pytest.raises(DamagedObjectError):
        read_continue_token(body)


@pytest.mark.parametrize("first", [True, False])
def test_last_of_two_variables_with_the_same_name_counts(first: bool) -> None:  # noqa: FBT001 - a table
    value = a_full_object()
    plain = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    for container in (*value["spec"]["containers"], *value["spec"]["initContainers"]):
        path = f"metadata.annotations['visible-devices.vrampack.dev/{container['name']}']"
        wired = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        container["env"] = [plain, wired] if first else [wired, plain]
    ask = decode_pod(value).request
    assert ask is not None
    assert ask.has_references is first
    assert_same(value)


NO_PAGES = [b"", b"null", b"[]", b'{"items":{}}']
NO_PAGES += [b"\xff", b'{"items":[NaN]}', b"[" * 100_000, b'{"a":' * 100_000 + b'"items":', b"<html>"]


@pytest.mark.parametrize("body", NO_PAGES, ids=lambda body: repr(body[:20]))
def test_a_non_list_is_refused(body: bytes) -> None:
    with pytest.raises(DamagedObjectError):
        decode_items(body)
    with pytest.raises(DamagedObjectError):
        read_continue_token(body)


def damaged(value: Any, path: tuple[str | int, ...], junk: object) -> Any:  # noqa: ANN401 - any JSON value
    """`value` with `junk` at `path`, as far as there is such a path left."""
    if not path:
        return junk
    head, *rest = path
    if isinstance(value, dict) and isinstance(head, str):
        return {**value, head: damaged(value.get(head), tuple(rest), junk)}
    if isinstance(value, list) and isinstance(head, int) and head < len(value):
        return [*value[:head], damaged(value[head], tuple(rest), junk), *value[head + 1 :]]
    return value


def all_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from all_paths(item, (*path, key))


def test_every_field_that_is_read_is_damaged_somewhere() -> None:
    """The table of paths covers the whole object, but for second entries of lists."""
    shown = {path[-1] for path in all_paths(a_full_object()) if isinstance(path[-1], str)}
    assert shown - {step for path in PATHS for step in path} == set()
