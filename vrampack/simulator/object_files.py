"""Objects from a file: what `kubectl get nodes,pods -A -o yaml` or `vrampack snapshot` writes, or a file written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vrampack.config.yaml_document import CheckedLoader
from vrampack.simulator.replay.kept_fields import (
    KeptAffinity,
    KeptFields,
    KeptNamespace,
    KeptNode,
    KeptPod,
    KeptPodSpec,
)
from vrampack.simulator.resource_kinds import Object

ACCEPTED_KINDS = ("Node", "Pod", "Namespace")
TYPED_LISTS = {"NodeList": "Node", "PodList": "Pod", "NamespaceList": "Namespace"}
LIST_KINDS = ("List", *TYPED_LISTS)


class _PodRules(KeptFields, frozen=True):
    required_during_scheduling_ignored_during_execution: list[object] | None = None


class _ReadAffinity(KeptAffinity, frozen=True):
    pod_affinity: _PodRules | None = None
    pod_anti_affinity: _PodRules | None = None


class _SpreadRule(KeptFields, frozen=True):
    when_unsatisfiable: str | None = None


class _ReadPodSpec(KeptPodSpec, frozen=True):
    """With the fields that a replay only names when it does not follow them."""

    affinity: _ReadAffinity | None = None
    topology_spread_constraints: list[_SpreadRule] | None = None


class _ReadPod(KeptPod, frozen=True):
    spec: _ReadPodSpec = _ReadPodSpec()


_READ_FIELDS = {"Node": KeptNode, "Pod": _ReadPod, "Namespace": KeptNamespace}
"""Whatever reads an object relies on the types of these fields."""


class ObjectFileError(ValueError):
    """The file cannot be used; the message names it, the object and the fix."""


class _Loader(CheckedLoader):
    """Leaves times as text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_objects(file: Path) -> list[Object]:
    """The objects of all documents and lists in `file`, in their order. Raises `ObjectFileError`."""
    try:
        documents = _read_documents(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ObjectFileError(f"{file}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ObjectFileError(f"{file}: not YAML: {error}") from error
    except RecursionError as error:
        raise ObjectFileError(f"{file}: it is nested too deeply") from error
    objects = [
        item
        for at, document in enumerate(documents)
        if document is not None
        for item in _iterate_items(document, f"[{at}]")
    ]
    seen: set[tuple[str, str, str]] = set()
    for place, item in objects:
        _check_object(file, place, item)
        metadata = item["metadata"]
        key = (item["kind"], metadata.get("namespace") or "default", metadata["name"])
        if key in seen:
            raise ObjectFileError(f"{file}: document {place}: {key[0]} {key[2]} appears twice; remove one")
        seen.add(key)
    return [item for _, item in objects]


def _read_documents(text: str) -> list[Any]:  # any JSON
    """Parse as JSON if possible: JSON is YAML too, but a large list takes the YAML reader a hundred times as long."""
    if text.lstrip().startswith("{"):
        try:
            return [msgspec.json.decode(text)]
        except msgspec.DecodeError:
            pass  # YAML may begin the same way
    return list(yaml.load_all(text, Loader=_Loader))


def _iterate_items(document: Any, place: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - whatever the file holds
    if isinstance(document, dict) and document.get("kind") in LIST_KINDS:
        kind = TYPED_LISTS.get(document["kind"])
        items = document.get("items") or []
        if not isinstance(items, list):
            yield f"{place}.items", items
            return
        for at, item in enumerate(items):
            # Items of a typed list have no kind.
            is_bare = kind is not None and isinstance(item, dict) and "kind" not in item
            yield f"{place}.items[{at}]", {"kind": kind, **item} if is_bare else item
    else:
        yield place, document


def _check_object(file: Path, place: str, item: Any) -> None:  # noqa: ANN401 - whatever the file holds
    where = f"{file}: document {place}"
    if not isinstance(item, dict):
        raise ObjectFileError(f"{where}: not an object with kind and metadata")
    if item.get("kind") not in ACCEPTED_KINDS:
        raise ObjectFileError(
            f"{where}.kind: {item.get('kind')!r} is none of {', '.join(ACCEPTED_KINDS)}; leave it out of the file"
        )
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise ObjectFileError(f"{where}.metadata.name: missing; give the {item['kind']} a name")
    try:
        msgspec.convert({key: value for key, value in item.items() if value is not None}, _READ_FIELDS[item["kind"]])
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ObjectFileError(f"{where}{path.rstrip('`')}: {problem}") from error
