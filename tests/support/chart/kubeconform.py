"""kubeconform, built of its Go module, and the schemas it reads: those that an API server publishes of itself.

Its own come from the internet, made of the same documents. Of kinds that are installed the server publishes them too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.support.chart.helm import MODULES
from tests.support.control_plane.cluster import ControlPlane
from tests.support.go_module import GoModule
from tests.support.manifests import Json
from tests.support.polling import wait_until

LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
TIMEOUT_SECONDS = 60


def locate_kubeconform(environ: Mapping[str, str] = os.environ) -> Path:
    """The program; built where it is not yet. Raises `RuntimeError` without Go."""
    module = GoModule(MODULES / "kubeconform", "helm", "github.com/yannh/kubeconform/cmd")
    return module.build_programs(environ, "kubeconform") / "kubeconform"


def check_manifests(schemas: Path, manifests: str) -> Json:
    """The report of kubeconform: `resources` that are wrong, and a `summary`. A kind without a schema is wrong."""
    location = f"{schemas}/{LOCATION}"
    done = subprocess.run(
        [locate_kubeconform(), "-strict", "-summary", "-output=json", f"-schema-location={location}"],
        input=manifests,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return json.loads(done.stdout)


def write_schemas(cluster: ControlPlane, folder: Path, *, kinds: Collection[str] = ()) -> None:
    """One file for each kind that this API server has, strict: a field that it does not publish is an error.

    It publishes installed `kinds` a moment after it serves them: `TimeoutError` where one is still missing after that.
    """
    wait_until(
        lambda: not set(kinds) - _write_schemas(cluster, folder),
        timeout_seconds=60,
        what=f"schemas of {kinds} are published",
    )


def _write_schemas(cluster: ControlPlane, folder: Path) -> set[str]:
    """The kinds whose schemas were written."""
    folder.mkdir(exist_ok=True)
    written = set()
    index = json.loads(cluster.kubectl("get", "--raw", "/openapi/v3").stdout)["paths"]
    for entry in index.values():
        document = json.loads(cluster.kubectl("get", "--raw", entry["serverRelativeURL"]).stdout)
        schemas = document.get("components", {}).get("schemas", {})
        closed = {name: _close(schema) for name, schema in schemas.items()}
        for name, schema in schemas.items():
            for kind in schema.get("x-kubernetes-group-version-kind", []):
                # kubeconform's `KindSuffix`: the first part of the group's name, and the version.
                parts = (kind["kind"], kind["group"].partition(".")[0], kind["version"])
                file = folder / f"{'-'.join(part for part in parts if part).lower()}.json"
                file.write_text(json.dumps({"$ref": f"#/definitions/{name}", "definitions": closed}))
                written.add(kind["kind"])
    return written


def _close(schema: Json) -> Json:
    """Allow only named properties, where there are any, and drop OpenAPI keywords that JSON schemas do not have."""
    made = {key: value for key, value in schema.items() if key not in {"default", "nullable"}}
    for key in ("items", "additionalProperties", "not"):
        if isinstance(made.get(key), dict):
            made[key] = _close(made[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in made:
            made[key] = [_close(each) for each in made[key]]
    if "properties" in made:
        made["properties"] = {name: _close(each) for name, each in made["properties"].items()}
        if not made.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if "$ref" in made:
        made["$ref"] = made["$ref"].replace("#/components/schemas/", "#/definitions/")
    return made
