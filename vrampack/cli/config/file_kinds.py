"""Every kind of file that people write for our programs, with its model and the name of its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from extender.admission_settings import AdmissionWebhookConfiguration
from extender.policy_file import PlacementPolicy
from extender.settings import ExtenderConfiguration
from vrampack.agent.settings import AgentConfiguration
from vrampack.config.kinds import FILE_OWNERS
from vrampack.config.strict import StrictModel


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind: what `kind:` says, who reads it, and its schema under docs/schemas."""

    name: str
    reader: str
    model: type[StrictModel]
    schema_file: str


FILE_KINDS: Mapping[str, FileKind] = {
    kind.name: kind
    for kind in (
        FileKind("ExtenderConfiguration", "extender", ExtenderConfiguration, "extender-configuration.v1.json"),
        FileKind("AgentConfiguration", "agent", AgentConfiguration, "agent-configuration.v1.json"),
        FileKind(
            "AdmissionWebhookConfiguration",
            "admission",
            AdmissionWebhookConfiguration,
            "admission-webhook-configuration.v1.json",
        ),
        FileKind("PlacementPolicy", "policy", PlacementPolicy, "placement-policy.v1.json"),
    )
}


def find_file_kind(values: Mapping[str, Any]) -> FileKind | None:
    """The kind that the file names, even misspelt; None if it is none of ours."""
    if str(values.get("kind")) in FILE_OWNERS.keys() - FILE_KINDS.keys():
        return None
    for key in ("kind", *get_close_matches("kind", map(str, values))):
        near = get_close_matches(str(values.get(key)), FILE_KINDS, n=1)
        if near:
            return FILE_KINDS[near[0]]
    return None
