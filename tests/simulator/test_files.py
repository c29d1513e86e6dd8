"""Objects from a file: every form kubectl writes, and what is refused with the place and the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vrampack.simulator.object_files import ObjectFileError, read_objects

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n, creationTimestamp: 2026-01-02T03:04:05Z}\n"
POD = "kind: Pod\nmetadata: {name: p, namespace: ml}\nspec: {nodeName: n}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "objects.yaml"
    path.write_text(text)
    return path


FORMS = {
    "documents": f"{NODE}---\n{POD}---\n",
    "a list of both": "kind: List\nitems:\n- {kind: Node, metadata: {name: n}}\n- {kind: Pod, metadata: {name: p}}\n",
    "typed lists": "kind: NodeList\nitems: [{metadata: {name: n}}]\n---\nkind: PodList\nitems: [{metadata: {name: p}}]\n",
    "YAML that begins like JSON": "{kind: List, items: [{kind: Node, metadata: {name: n}}, {kind: Pod, metadata: {name: p}}]}",
    "JSON": json.dumps(
        {"kind": "List", "items": [{"kind": k, "metadata": {"name": k[0].lower()}} for k in ("Node", "Pod")]}
    ),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_of_objects_file_is_read(tmp_path: Path, text: str) -> None:
    objects = read_objects(written(tmp_path, text))
    assert [(item["kind"], item["metadata"]["name"]) for item in objects] == [("Node", "n"), ("Pod", "p")]


def test_a_time_stays_the_text_it_is(tmp_path: Path) -> None:
    (node,) = read_objects(written(tmp_path, NODE))
    assert node["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"


def test_the_same_name_in_two_namespaces_is_two_pods(tmp_path: Path) -> None:
    assert len(read_objects(written(tmp_path, POD + "---\n" + POD.replace("ml", "default")))) == 2


REFUSED = {
    "no YAML": ("a: [", "not YAML"),
    "no object": ("- 1\n", "document [0]: not an object with kind and metadata"),
    "another kind": ("kind: Service\nmetadata: {name: s}\n", "document [0].kind: 'Service' is none of Node, Pod"),
    "another kind in a list": (
        "kind: List\nitems:\n- {kind: Node, metadata: {name: n}}\n- {kind: Secret, metadata: {name: s}}\n",
        "document [0].items[1].kind: 'Secret' is none of Node, Pod",
    ),
    "no name": ("kind: Node\nmetadata: {}\n", "document [0].metadata.name: missing; give the Node a name"),
    "a spec that is none": (
        "kind: Pod\nmetadata: {name: p}\nspec: 4\n",
        "document [0].spec: Expected `object`, got `int`",
    ),
    "one twice": (f"{POD}---\n{POD}", "document [1]: Pod p appears twice; remove one"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_unusable_files_are_named_in_the_error(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ObjectFileError) as raised:
        read_objects(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ObjectFileError, match=r"none\.yaml: No such file"):
        read_objects(tmp_path / "none.yaml")
