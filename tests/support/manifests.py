"""Reads the `kustomization.yaml` files of `manifests/` as kubectl does, with the fields that they use: any other is an error.

    load_shape("second-scheduler")     the objects of one shape, as the sources say
    load_rendered("second-scheduler")  the same, as `helm template` prints them and `make render` committed them

The end-to-end tests compare what is committed with what helm makes of the chart and kubectl of the folders.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Json: TypeAlias = Any
"""Any kind of object: a test reads single fields of many, each asserted where it is read."""

MANIFESTS = Path(__file__).parents[2] / "manifests"
ON_THE_HOST = MANIFESTS / "kubeadm" / "control-plane"
SHAPES = ("second-scheduler", "kubeadm")
FILE = "kustomization.yaml"
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C, where PyYAML was built with it: six times as fast."""


def load_documents(path: Path) -> list[Json]:
    return [document for document in yaml.load_all(path.read_text(), SAFE_LOADER) if document]


def split_documents(text: str) -> set[str]:
    """The documents of a stream of YAML as they are written, each once, without empty ones and those of comments alone."""
    pieces = re.split(r"^---\n", text, flags=re.MULTILINE)
    return {piece for piece in pieces if re.search(r"^[^#\s]", piece, flags=re.MULTILINE)}


def load_rendered(shape: str) -> list[Json]:
    return load_documents(MANIFESTS / "rendered" / f"{shape}.yaml")


def load_shape(name: str) -> list[Json]:
    return load_objects(MANIFESTS / name)


def load_objects(folder: Path) -> list[Json]:
    """What `kubectl kustomize FOLDER` would print."""
    wanted = read_kustomization(folder)
    made = [
        item
        for path in _paths(folder, wanted)
        for item in (load_objects(path) if path.is_dir() else load_documents(path))
    ]
    made.extend(_config_map(folder, generator) for generator in wanted.pop("configMapGenerator", []))
    for item in made:
        _label(item, wanted.get("labels", []))
        for container in find_containers(item):
            _set_image(container, wanted.get("images", []))
    _point_to_hashed_names(made)
    unknown = set(wanted) - {"apiVersion", "kind", "resources", "images", "labels"}
    if unknown:
        raise ValueError(f"{folder / FILE}: this reader does not know {sorted(unknown)}")
    return made


def read_kustomization(folder: Path) -> dict[str, Json]:
    (wanted,) = load_documents(folder / FILE)
    return dict(wanted)


def named_files(folder: Path) -> Iterator[Path]:
    """Every file that the kustomization of `folder` names, itself included, but not what its sub-folders name."""
    wanted = read_kustomization(folder)
    yield folder / FILE
    yield from (path for path in _paths(folder, wanted) if path.is_file())
    for generator in wanted.get("configMapGenerator", []):
        yield from (folder / name for name in generator["files"])


def find_workload(shape: str, name: str) -> Json:
    """The Deployment or DaemonSet of that name, as rendered."""
    (found,) = [item for item in load_rendered(shape) if find_pod_template(item) and item["metadata"]["name"] == name]
    return found


def find_pod_template(item: Json) -> Json:
    """The pod that a workload makes, None of anything else."""
    return item.get("spec", {}).get("template") if item["apiVersion"] == "apps/v1" else None


def find_containers(item: Json) -> list[Json]:
    """All containers of a workload, its sidecars first."""
    spec = (find_pod_template(item) or {}).get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _paths(folder: Path, wanted: dict[str, Json]) -> list[Path]:
    return [(folder / name).resolve() for name in wanted.get("resources", [])]


def _config_map(folder: Path, generator: Json) -> Json:
    data = {Path(name).name: (folder / name).read_text() for name in generator["files"]}
    options = generator.get("options", {})
    if unknown := options.keys() - {"disableNameSuffixHash", "labels"}:
        raise ValueError(f"{folder / FILE}: this reader does not know {sorted(unknown)}")
    suffix = "" if options.get("disableNameSuffixHash") else f"-{_hash(data)}"
    metadata = {"name": f"{generator['name']}{suffix}", "namespace": generator["namespace"]}
    if "labels" in options:
        metadata["labels"] = options["labels"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _hash(data: dict[str, str]) -> str:
    """As kubectl does: ten hexadecimal digits over the object as Go writes it, without letters that could form words."""
    text = json.dumps({"data": data, "kind": "ConfigMap", "name": ""}, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(str.maketrans("013ae", "ghkmt"))


def _label(item: Json, rules: list[Json]) -> None:
    for rule in rules:
        item["metadata"]["labels"] = item["metadata"].get("labels", {}) | rule["pairs"]


def _set_image(container: Json, rules: list[Json]) -> None:
    for rule in rules:
        if container["image"].rpartition(":")[0] == rule["name"]:
            container["image"] = f"{rule['name']}:{rule['newTag']}"


def _point_to_hashed_names(made: list[Json]) -> None:
    hashed = {
        item["metadata"]["name"].rpartition("-")[0]: item["metadata"]["name"]
        for item in made
        if item["kind"] == "ConfigMap"
    }
    for item in made:
        for volume in (find_pod_template(item) or {}).get("spec", {}).get("volumes", []):
            source = volume.get("configMap", {})
            if source.get("name") in hashed:
                source["name"] = hashed[source["name"]]


def load_scheduler_configuration(name: str) -> Json:
    if name == "kubeadm":
        (found,) = load_documents(ON_THE_HOST / "scheduler.yaml")
        return found
    (text,) = [
        item["data"]["scheduler.yaml"] for item in load_rendered(name) if "scheduler.yaml" in item.get("data", {})
    ]
    return yaml.safe_load(text)
