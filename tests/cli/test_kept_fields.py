"""A snapshot and a support bundle keep exactly the fields in their tables: each one that is listed, and none beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from vrampack.cards import well_known
from vrampack.cli.support_bundle.kept_objects import (
    BundledEvent,
    BundledNode,
    OwnPod,
    OwnWorkload,
    keep_event,
    keep_node,
    keep_own_pod,
    keep_workload,
)
from vrampack.kube.objects import build_admission_entry
from vrampack.simulator.replay.kept_fields import KeptNamespace, KeptNode, KeptPod
from vrampack.simulator.replay.trimming import SnapshotScope, trim_cluster
from vrampack.simulator.resource_kinds import Object

TEXT = "text"
UNLISTED = "unlisted"
SCALARS = {inspect.BoolType: True, inspect.IntType: 7, inspect.StrType: TEXT}


def build_sample(kind: type[msgspec.Struct], given: Mapping[str, object]) -> Object:
    """An object with every field of the table and, on every level, one that is not in it. `given` has values by field."""
    sample: Object = _build_value(inspect.type_info(kind), given)
    return sample


def _build_value(kind: inspect.Type, given: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON
    match kind:
        case inspect.StructType():
            fields = {each.encode_name: each.type for each in kind.fields}
            listed = {name: given[name] if name in given else _build_value(of, given) for name, of in fields.items()}
            return {UNLISTED: 7, **listed}
        case inspect.ListType():
            return [_build_value(kind.item_type, given)]
        case inspect.DictType():
            return {"key": _build_value(kind.value_type, given)}
        case inspect.UnionType():
            return _build_value(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), given)
        case _:
            return SCALARS[type(kind)]


def drop_unlisted(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [drop_unlisted(each) for each in value]
    if isinstance(value, dict):
        return {name: drop_unlisted(each) for name, each in value.items() if name != UNLISTED}
    return value


BUNDLED: Mapping[str, tuple[type[msgspec.Struct], Callable[[Object], msgspec.Struct], Mapping[str, object]]] = {
    "a node": (BundledNode, keep_node, {"labels": {well_known.ENFORCEMENT: TEXT}}),
    "a pod of ours": (OwnPod, keep_own_pod, {}),
    "a workload of ours": (OwnWorkload, lambda item: keep_workload(item, TEXT), {}),
    "an event": (BundledEvent, keep_event, {"reportingComponent": "vrampack-agent"}),
}


@pytest.mark.parametrize(("kind", "keep", "given"), BUNDLED.values(), ids=BUNDLED)
def test_a_bundle_keeps_the_listed_fields_and_no_others(
    kind: type[msgspec.Struct], keep: Callable[[Object], msgspec.Struct], given: Mapping[str, object]
) -> None:
    sample = build_sample(kind, given)
    assert msgspec.to_builtins(keep(sample)) == drop_unlisted(sample)


def test_a_snapshot_keeps_the_listed_fields_and_no_others() -> None:
    """Of labels, annotations and environments those that placement reads."""
    node = build_sample(KeptNode, {"annotations": {well_known.NODE_CARDS: TEXT}})
    env = [msgspec.to_builtins(build_admission_entry(TEXT))]
    pod = build_sample(KeptPod, {"annotations": {well_known.POLICY: TEXT}, "env": env})
    namespace = build_sample(KeptNamespace, {"annotations": {UNLISTED: TEXT}})
    scope = SnapshotScope(label_keys=["key"], namespace_label_keys=["key"])
    trimmed = {each.pop("kind"): each for each in trim_cluster([node], [pod], [namespace], scope).objects}
    del namespace["metadata"]["annotations"]
    wanted = {"Node": node, "Namespace": namespace, "Pod": pod}
    assert trimmed == {kind: {"apiVersion": "v1", **drop_unlisted(each)} for kind, each in wanted.items()}
