"""The auditor survives any content of the API or a transcript: the object it should report must not silence it."""

import json
import random
from copy import deepcopy
from typing import Any

import pytest

from tests.auditor.audit import audit_objects
from tests.auditor.builders import Object, bound_elsewhere, clean_scene
from tests.auditor.spoils import add_pod

OBJECTS: dict[str, Object] = {
    "empty": {},
    "wrong types": {"metadata": None, "spec": [], "status": 7},
    "wrong types deeper": {"metadata": {"annotations": {"a": 7}, "labels": [1]}, "spec": {"containers": [None, 3, {}]}},
    "nested too deeply": bound_elsewhere("deep", "n1", {"vrampack.dev/allocation": "[" * 100_000}),
    "too many digits": bound_elsewhere("digits", "n1", {"ALIYUN_COM_GPU_MEM_IDX": "9" * 10_000}),
    "a list for an object": bound_elsewhere("list", "n1", {"scheduler.framework.gpushare.allocation": "[]"}),
    "more cards than there are": {
        "status": {"allocatable": {"aliyun.com/gpu-mem": "9E", "aliyun.com/gpu-count": "1E"}}
    },
}


@pytest.mark.parametrize("garbage", OBJECTS.values(), ids=OBJECTS)
def test_garbage_does_not_hide_another_violation(garbage: Object) -> None:
    scene = clean_scene()
    add_pod(1, card=0, node="n1")(scene)
    found = audit_objects(
        [garbage, *scene.pods.values()], [garbage, *scene.nodes.values()], [garbage, *scene.transcript]
    )
    assert ("I1", "node n1 card 0") in {(violation.invariant, violation.object) for violation in found}


def test_no_value_anywhere_crashes_the_auditor() -> None:
    """Also inside the JSON that annotations hold; 200 scenes take a second."""
    chance = random.Random(3)
    clean = clean_scene()
    for _ in range(200):
        scene = deepcopy({"pods": clean.pods, "nodes": clean.nodes, "transcript": dict(enumerate(clean.transcript))})
        for _ in range(chance.randint(1, 4)):
            spoil(chance, scene)
        pods, nodes, transcript = ([o for o in part.values() if isinstance(o, dict)] for part in parts(scene))
        for violation in audit_objects(pods, nodes, transcript, complete=True):
            assert str(violation).encode()


VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "-1",
    "9" * 5000,
    "1E",
    [],
    {},
    [None],
    "{}",
    "[]",
    "null",
    "\ud800",
]


def spoil(chance: random.Random, obj: Any) -> None:  # noqa: ANN401 - any JSON
    """Replace or remove one value."""
    *way, last = chance.choice(list(ways(obj)))
    for step in way:
        obj = obj[step]
    if isinstance(obj[last], str) and obj[last][:1] == "{" and chance.random() < 0.8:
        inner = json.loads(obj[last])
        if inner:
            spoil(chance, inner)
            obj[last] = json.dumps(inner)
            return
    if isinstance(obj, dict) and chance.random() < 0.2:
        del obj[last]
    else:
        obj[last] = deepcopy(chance.choice(VALUES))


def ways(obj: object, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # Any: keys and indices
    """The way to every value in it."""
    steps = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    return [way for step, inner in steps for way in [(*so_far, step), *ways(inner, (*so_far, step))]]


def parts(scene: Object) -> list[Object]:
    return [part if isinstance(part := scene.get(name), dict) else {} for name in ("pods", "nodes", "transcript")]
