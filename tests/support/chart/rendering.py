"""Renders charts/vrampack with `helm template` into files of `manifests/`.

A file of `manifests/` has the path of its template: `manifests/agent/daemonset.yaml` is rendered from
`templates/agent/daemonset.yaml` with the values named in `FOLDERS`. Beside them are the files from which kustomize makes ConfigMaps.
`make render` writes them all, and the table of docs/chart.md, the schemas in that of values, and
`manifests/rendered/SHA256SUMS`, by which `make check` detects without helm that the chart or a file was changed and not rendered.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import yaml

from tests.support.chart.values import CHART, read_values
from tests.support.manifests import MANIFESTS, SAFE_LOADER, SHAPES, Json

ROOT = MANIFESTS.parent
PAGE = ROOT / "docs" / "chart.md"
VALUES_SCHEMA = CHART / "values.schema.json"
PROGRAM_SCHEMAS = ("extender-configuration", "agent-configuration", "admission-webhook-configuration")
RENDERED = MANIFESTS / "rendered"
SUMS = RENDERED / "SHA256SUMS"
NAMESPACE = "vrampack-system"
APPLIED = "kubectl"
"""The values of what `kubectl apply` is given instead of Helm, beside those of a shape."""
KUSTOMIZED = "kustomize"
"""The values of what kustomize makes ConfigMaps for, beside those."""
FOLDERS: Mapping[str, Sequence[str]] = {
    "second-scheduler": ["second-scheduler"],
    "kubeadm": ["kubeadm"],
    "common": ["second-scheduler"],
    "agent": ["second-scheduler"],
    "admission": ["second-scheduler"],
    "admission/second-scheduler": ["second-scheduler"],
    "admission/kubeadm": ["kubeadm"],
    "admission/void": ["second-scheduler", "exact"],
    "admission/exact": ["second-scheduler", "exact"],
    "admission/optional": ["second-scheduler", "optional"],
    "webhook/common": ["webhook-second-scheduler"],
    "monitoring": ["webhook-second-scheduler", "monitoring"],
}
"""Which value files the objects of a folder are made of."""
PROGRAM_FILES: Mapping[str, Sequence[str]] = {
    "second-scheduler/extender.yaml": ["second-scheduler"],
    "second-scheduler/scheduler.yaml": ["second-scheduler"],
    "kubeadm/extender.yaml": ["kubeadm"],
    "agent/agent.yaml": ["second-scheduler"],
    "webhook/second-scheduler/admission.yaml": ["webhook-second-scheduler"],
    "webhook/kubeadm/admission.yaml": ["webhook-kubeadm"],
}
"""The same of the files that programs read."""
Template: TypeAlias = Callable[[Sequence[str]], str]
"""What `helm template` prints for these value files."""


def template_with(helm: Path) -> Template:
    """A `Template` of this program; Helm 4 leaves empty lines behind a document, of which there are none here."""

    def template(names: Sequence[str]) -> str:
        return re.sub(r"\n+(---\n|\Z)", r"\n\1", run_helm(helm, "template", *value_flags(names)))

    return template


def run_helm(helm: Path, command: str, *arguments: str | Path) -> str:
    """The output of a command that reads the chart. Raises `CalledProcessError` with its message if it fails."""
    return subprocess.run(
        [helm, command, "vrampack", CHART, "--namespace", NAMESPACE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"HOME": "/nonexistent"},
    ).stdout


def value_flags(names: Sequence[str]) -> list[str]:
    """Flags for files of `charts/vrampack/values`."""
    return [f"--values={CHART / 'values' / name}.yaml" for name in names]


def parse_objects(text: str) -> list[Json]:
    return [document for document in yaml.load_all(text, SAFE_LOADER) if document]


def split_by_source(text: str) -> dict[str, str]:
    """The documents of each template, joined again: the path below `templates/`, and the text of a file."""
    found = defaultdict(list)
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        first, _, rest = document.partition("\n")
        if document.strip():
            found[first.removeprefix("# Source: vrampack/templates/")].append(rest.strip("\n") + "\n")
    return {path: "---\n".join(documents) for path, documents in found.items()}


def render_files(template: Template) -> dict[Path, str]:
    """Every file that is rendered from the chart, with its text."""
    made = {RENDERED / f"{shape}.yaml": template([APPLIED, shape]) for shape in SHAPES}
    for folder, names in FOLDERS.items():
        sources = split_by_source(template([APPLIED, KUSTOMIZED, *names]))
        made |= {
            MANIFESTS / path: text for path, text in sources.items() if PurePosixPath(path).parent.as_posix() == folder
        }
    for path, names in PROGRAM_FILES.items():
        key = PurePosixPath(path).name
        (text,) = [
            item["data"][key] for item in parse_objects(template([APPLIED, *names])) if key in item.get("data", {})
        ]
        made[MANIFESTS / path] = text
    return made


def embed_schemas(text: str) -> str:
    """The schema of values with the published ones of the programs' files in it, which it refers to by their addresses."""
    schema = json.loads(text)
    for name in PROGRAM_SCHEMAS:
        schema["$defs"][name] = json.loads((ROOT / "docs" / "schemas" / f"{name}.v1.json").read_text())
    return json.dumps(schema, indent=2) + "\n"


def embed_table(page: str) -> str:
    """docs/chart.md with a row for each value."""
    before, heading, behind = page.partition("\n## Values\n")
    head = "| value | default | change it when, or what it is |\n|---|---|---|\n"
    text, _, after = behind.partition("\n| value |")
    _, next_heading, rest = after.partition("\n\n## ")
    rows = "".join(value.row for value in read_values())
    return f"{before}{heading}{text}\n{head}{rows}".rstrip("\n") + "\n" + (f"\n## {rest}" if next_heading else "")


def list_summed() -> Iterator[Path]:
    """Every source that has to be rendered again after a change, and every rendered file. A schema changes no object."""
    yield from sorted(path for path in CHART.rglob("*") if path.is_file() and path != VALUES_SCHEMA)
    yield from sorted(path for path in MANIFESTS.rglob("*.yaml") if _is_rendered(path))


def _is_rendered(path: Path) -> bool:
    name = path.relative_to(MANIFESTS)
    of_a_folder = name.parent.as_posix() in FOLDERS and name.name != "kustomization.yaml"
    return of_a_folder or name.as_posix() in PROGRAM_FILES or path.parent == RENDERED


def compute_sums() -> str:
    """The text of `SHA256SUMS`, as sha256sum writes it in the repository's root."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT).as_posix()}\n"
        for path in list_summed()
    )


def write_documents() -> None:
    """Write what is made of the chart without helm: its schema, and the table of its page."""
    VALUES_SCHEMA.write_text(embed_schemas(VALUES_SCHEMA.read_text()))
    PAGE.write_text(embed_table(PAGE.read_text()))


def write_files(template: Template) -> None:
    """Write what helm renders, and the sums."""
    for path, text in render_files(template).items():
        path.write_text(text)
    SUMS.write_text(compute_sums())
