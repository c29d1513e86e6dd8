"""What a body means: letter case, nulls, unknown fields, quantities in every form that JSON allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from extender.wire.args import ArgsReader
from extender.wire.codec import BindingArgs, MalformedCallError, read_binding_args
from vrampack.cards.pod import Pod
from vrampack.cards.request import CardRequest, PodRequest

MEMORY = "aliyun.com/gpu-mem"
BODY = {
    "Pod": {
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u1",
            "labels": {"aliyun.com/gpu-count": "2", "Name": "Metadata"},
            "annotations": {"vrampack.dev/card-model": "T4"},
        },
        "spec": {
            "initContainers": [
                {"name": "i", "restartPolicy": "Always", "resources": {"limits": {MEMORY: "2"}}},
            ],
            "containers": [{"name": "c", "resources": {"limits": {MEMORY: "4"}, "requests": {MEMORY: "4"}}}],
        },
        "status": {"phase": "Pending"},
    },
    "Nodes": None,
    "NodeNames": ["n2", "n1"],
}
WANTED = CardRequest(units=3, count=2, models=frozenset({"T4"}), has_references=False, instances=3)  # (4 + 2) / 2 cards
FIELDS = (
    *("Pod", "NodeNames", "Nodes", "metadata", "uid", "namespace", "labels", "annotations", "spec", "containers"),
    *("initContainers", "restartPolicy", "resources", "limits", "requests", "status", "name"),
)


def body_with(quantity: str) -> bytes:
    """One container that asks for `quantity`, written as JSON."""
    return (
        '{"Pod": {"metadata": {"name": "train", "namespace": "ml", "uid": "u1"}, "spec": {"containers": [{"name": "c", '
        f'"resources": {{"limits": {{"{MEMORY}": {quantity}}}}}}}]}}}}, "NodeNames": ["n2", "n1"]}}'
    ).encode()


def read_request(body: bytes) -> PodRequest:
    pod, names = read_args(body, MEMORY)
    assert names == ["n2", "n1"]
    assert (pod.uid, pod.namespace, pod.name) == ("u1", "ml", "train")
    assert pod.request is not None
    return pod.request


def read_args(body: bytes, resource: str) -> tuple[Pod, list[str]]:
    asking, names = ArgsReader(resource).read_args(body)
    return asking.pod, names


def refusal(body: bytes) -> str:
    try:
        return read_request(body).problem
    except MalformedCallError as error:
        return str(error)


def test_a_body_in_the_schedulers_spelling_is_read() -> None:
    assert read_request(json.dumps(BODY).encode()).card_request == WANTED


@pytest.mark.parametrize("spell", [str.upper, str.lower, str.swapcase])
def test_any_single_key_is_read_in_another_letter_case(spell: Callable[[str], str]) -> None:
    for field in FIELDS:
        body = json.dumps(BODY).replace(f'"{field}":', f'"{spell(field)}":')
        assert read_request(body.encode()).card_request == WANTED, field


def test_keys_of_maps_keep_their_letter_case() -> None:
    """A label is not a field: `ALIYUN.com/gpu-count` asks for nothing, and `Name` stays what it is."""
    body = json.dumps(BODY).replace("aliyun.com/gpu-count", "ALIYUN.com/gpu-count").replace('"Pod":', '"pod":')
    assert read_request(body.encode()).card_request == replace(WANTED, units=6, count=1)


def test_unknown_fields_are_skipped_at_every_depth() -> None:
    body = json.dumps(BODY)
    for brace in ("{", '"metadata": {', '"spec": {', '{"name": "c", ', '"status": {'):
        body = body.replace(brace, brace + '"x-new": {"deep": [1, {"a": null}], "b": 1e5}, ', 1)
    assert read_request(body.encode()).card_request == WANTED


@pytest.mark.parametrize(
    "place", ["labels", "annotations", "initContainers", "status", "deletionTimestamp", "requests"]
)
def test_a_null_field_is_read_as_empty(place: str) -> None:
    body = json.loads(json.dumps(BODY))
    for holder in (
        body["Pod"]["metadata"],
        body["Pod"]["spec"],
        body["Pod"],
        body["Pod"]["spec"]["containers"][0]["resources"],
    ):
        if place in holder or place == "deletionTimestamp":
            holder[place] = None
    pod, _ = read_args(json.dumps(body).encode(), MEMORY)
    assert pod.request is not None
    assert not pod.request.problem


@pytest.mark.parametrize("place", ["metadata", "spec", "status"])
def test_a_null_part_of_a_pod_is_read_as_empty(place: str) -> None:
    body = {**BODY, "Pod": {**BODY["Pod"], place: None}}  # type: ignore[dict-item]  # a literal, known to be a dict
    pod, names = read_args(json.dumps(body).encode(), MEMORY)
    assert names == ["n2", "n1"]
    assert (pod.request is None) == (place == "spec")


def test_an_empty_name_list_is_read_and_a_null_one_is_refused() -> None:
    assert read_args(json.dumps({**BODY, "NodeNames": []}).encode(), MEMORY)[1] == []
    with pytest.raises(MalformedCallError, match="NodeNames is missing"):
        read_args(json.dumps({**BODY, "NodeNames": None}).encode(), MEMORY)


@pytest.mark.parametrize("nodes", [{"items": []}, {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}])
@pytest.mark.parametrize("key", ["Nodes", "nodes"])
def test_whole_nodes_are_refused_with_the_setting_to_change(key: str, nodes: object) -> None:
    body = {"Pod": BODY["Pod"], key: nodes, "NodeNames": None}
    with pytest.raises(MalformedCallError, match="set nodeCacheCapable: true"):
        read_args(json.dumps(body).encode(), MEMORY)


@pytest.mark.parametrize("pod", [None, "absent"])
def test_a_missing_pod_is_named(pod: object) -> None:
    body: dict[str, object] = {"NodeNames": ["n1"]}
    if pod is None:
        body["Pod"] = None
    with pytest.raises(MalformedCallError, match="Pod is missing"):
        read_args(json.dumps(body).encode(), MEMORY)


@pytest.mark.parametrize(
    ("quantity", "units"),
    [
        ('"4"', 4),
        ("4", 4),
        ("4.0", 4),
        ('"1e3"', 1000),
        ("1e3", 1000),
        ('"4000m"', 4),
        ('"1Ki"', 1024),
        ('"1048576"', 1048576),
    ],
)
def test_quantities(quantity: str, units: int) -> None:
    request = read_request(body_with(quantity))
    assert (request.card_request.units, request.problem) == (units, "")


@pytest.mark.parametrize("quantity", ['"0"', "0", "0.0", '"0Gi"', '"-0"'])
def test_a_zero_quantity_is_no_request(quantity: str) -> None:
    assert read_args(body_with(quantity), MEMORY)[0].request is None


IMPOSSIBLE = (
    *('"10G"', '"9223372036854775808"', "9223372036854775808", '"18446744073709551616"', '"1048577"', '"1Ti"'),
    *(
        '"-1"',
        "-1",
        '"1.5"',
        "1.5",
        '"abc"',
        '""',
        '" 4"',
        '"4 "',
        '"4GB"',
        '"0x4"',
        '"1_0"',
        '"٤"',
        "true",
        "{}",
        "[4]",
    ),
)


@pytest.mark.parametrize("quantity", IMPOSSIBLE)
def test_impossible_quantities_never_fit_and_name_the_field(quantity: str) -> None:
    for body in (body_with(quantity), body_with(quantity).replace(b'"Pod"', b'"POD"')):
        assert 'spec.containers[0].resources.limits["aliyun.com/gpu-mem"]' in read_request(body).problem


@pytest.mark.parametrize(
    "quantity",
    ["1e999", "1" * 25, "1" * 5000, '"' + "1" * 5000 + '"', '"1e99"', "[" * 2000 + "]" * 2000],
    ids=lambda quantity: quantity[:30],
)
def test_huge_quantities_are_refused_in_any_letter_case(quantity: str) -> None:
    for body in (body_with(quantity), body_with(quantity).replace(b'"Pod"', b'"POD"')):
        assert refusal(body)


def test_the_last_of_two_equal_annotation_keys_wins() -> None:
    doubled = '"annotations": {"vrampack.dev/card-model": "A10", '
    body = json.dumps(BODY).replace('"annotations": {', doubled)
    assert read_request(body.encode()).card_request == WANTED  # the last one, as everywhere in Go


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"null", b"[]", b"7", b'"x"', b"{", b"{}x", b"\xff", b'{"Pod":{"metadata":{"uid":"\xff"}},"NodeNames":[]}',
     b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"Pod":' * 50_000, b'{"Pod":{},"NodeNames":["\\ud800"]}', b'{"Pod":{},"NodeNames":[1]}',
     b'{"Pod":{},"NodeNames":"n1"}', b'{"Pod":[],"NodeNames":[]}', b'{"Pod":{"spec":{"containers":[null]}},"NodeNames":[]}',
     b'{"Pod":{"spec":{"priority":1e400}},"NodeNames":[]}'],
    ids=lambda body: body[:30].decode(errors="replace"),
)  # fmt: skip
def test_rubbish_raises_a_malformed_call_error(body: bytes) -> None:
    with pytest.raises(MalformedCallError):
        read_args(body, MEMORY)
    with pytest.raises(MalformedCallError):
        read_binding_args(body)


BINDING = {"PodName": "train", "PodNamespace": "ml", "PodUID": "u1", "Node": "n1"}


@pytest.mark.parametrize("spell", [str.title, str.upper, str.lower])
def test_a_binding_is_read_in_any_letter_case(spell: Callable[[str], str]) -> None:
    body = json.dumps({spell(key): value for key, value in BINDING.items()} | {"new": [1]})
    assert read_binding_args(body.encode()) == BindingArgs("train", "ml", "u1", "n1")


@pytest.mark.parametrize("value", ["", None])
@pytest.mark.parametrize("key", BINDING)
def test_a_binding_error_names_the_missing_field(key: str, value: str | None) -> None:
    with pytest.raises(MalformedCallError, match=f"{key} is missing"):
        read_binding_args(json.dumps({**BINDING, key: value}).encode())


@pytest.mark.parametrize(
    "value", ["..", ".", "a/b", "../../nodes", "a?b", "a%2fb", "A", "-a", "a b", "a\n", "x" * 254, "\x00"]
)
@pytest.mark.parametrize("key", ["PodName", "PodNamespace", "Node"])
def test_a_name_that_would_change_a_path_is_refused(key: str, value: str) -> None:
    with pytest.raises(MalformedCallError, match=f"{key}: .* is not a name"):
        read_binding_args(json.dumps({**BINDING, key: value}).encode())
