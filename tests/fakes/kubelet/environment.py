"""Builds a container's environment from its pod, as kubelet does at every start: in order, references resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.fakes.kubelet.errors import DeviceError
from tests.fakes.kubelet.pods import Json, KubeletContainer

SUBSCRIPTED = re.compile(r"^(metadata\.(?:annotations|labels))\['(.*)'\]$")
VARIABLE = re.compile(r"\$(?:\$|\(([^()]*)\))")


def resolve_environment(spec: Json, container: KubeletContainer) -> dict[str, str]:
    """The variables of `container` in the pod `spec`; a later entry of the same name wins."""
    made: dict[str, str] = {}
    for entry in container.env:
        if entry.get("value"):
            made[entry["name"]] = _expanded(entry["value"], made)
        else:
            reference = (entry.get("valueFrom") or {}).get("fieldRef")
            made[entry["name"]] = _field(spec, reference["fieldPath"]) if reference else ""
    return made


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` of a variable named before; an unknown one is kept as written, and `$$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else known.get(name, match.group(0))

    return VARIABLE.sub(value, text)


def _field(spec: Json, path: str) -> str:
    """A key that is not there gives an empty variable, not a missing one."""
    metadata = spec["metadata"]
    if match := SUBSCRIPTED.match(path):
        values = metadata.get(match.group(1).removeprefix("metadata.")) or {}
        return str(values.get(match.group(2), ""))
    if path in {"metadata.name", "metadata.namespace", "metadata.uid"}:
        return str(metadata[path.removeprefix("metadata.")])
    if path in {"spec.nodeName", "spec.serviceAccountName"}:
        return str(spec["spec"].get(path.removeprefix("spec."), ""))
    raise DeviceError(f"unsupported fieldPath: {path}")
