"""The configuration in force: the files in ConfigMaps that our pods mount, with every default filled in, and the scheduler's.

A file is written as it was parsed, never as it was typed: comments and unknown fields may contain anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from extender.policy_file import PLACEMENT_FIELDS, PlacementPolicy
from extender.settings import ExtenderConfiguration
from vrampack.cli.config.file_kinds import FILE_KINDS
from vrampack.cli.support_bundle.bundle_file import BundledFile, encode_json_file
from vrampack.cli.support_bundle.redaction import redact_text
from vrampack.config.errors import SettingsError
from vrampack.config.faults import UnreadableDocumentError
from vrampack.config.strict import StrictModel, validate_configuration
from vrampack.config.yaml_document import parse_yaml_document
from vrampack.simulator.replay.kept_fields import KeptFields

SCHEDULER_KIND = "KubeSchedulerConfiguration"


class LeaderElectionFields(KeptFields, frozen=True):
    leader_elect: bool | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None


class ClientConnectionFields(KeptFields, frozen=True):
    qps: float | None = None
    burst: int | None = None


class SchedulerPlugin(KeptFields, frozen=True):
    name: str = ""
    weight: int | None = None


class SchedulerPluginSet(KeptFields, frozen=True):
    enabled: list[SchedulerPlugin] | None = None
    disabled: list[SchedulerPlugin] | None = None


class SchedulerProfileFields(KeptFields, frozen=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[str, SchedulerPluginSet] | None = None


class ManagedResourceFields(KeptFields, frozen=True):
    name: str = ""
    ignored_by_scheduler: bool | None = None


class SchedulerExtenderFields(KeptFields, frozen=True):
    url_prefix: str | None = None
    filter_verb: str | None = None
    prioritize_verb: str | None = None
    preempt_verb: str | None = None
    bind_verb: str | None = None
    weight: int | None = None
    enable_https: bool | None = msgspec.field(default=None, name="enableHTTPS")
    http_timeout: str | None = None
    node_cache_capable: bool | None = None
    managed_resources: list[ManagedResourceFields] | None = None
    ignorable: bool | None = None


class SchedulerConfigurationFields(KeptFields, frozen=True):
    api_version: str = ""
    kind: str = ""
    parallelism: int | None = None
    percentage_of_nodes_to_score: int | None = None
    leader_election: LeaderElectionFields | None = None
    client_connection: ClientConnectionFields | None = None
    profiles: list[SchedulerProfileFields] | None = None
    extenders: list[SchedulerExtenderFields] | None = None


@dataclass(slots=True)
class OwnConfiguration:
    """What was found."""

    files: list[BundledFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extender: ExtenderConfiguration | None = None
    policy: PlacementPolicy | None = None

    @property
    def settings(self) -> ExtenderConfiguration | None:
        """The extender's configuration, with its policy file if it has one."""
        if self.extender is None or self.policy is None or self.extender.model_fields_set & set(PLACEMENT_FIELDS):
            return self.extender
        return self.extender.model_copy(update={name: getattr(self.policy, name) for name in PLACEMENT_FIELDS})


def read_own_configuration(config_maps: Iterable[tuple[str, Mapping[str, str]]]) -> OwnConfiguration:
    """Read the configuration from ConfigMaps, pairs of name and data, in this order."""
    read = OwnConfiguration()
    for name, texts in config_maps:
        for key, text in texts.items():
            _read_file(read, f"{name}/{PurePath(key).name}", text)
    return read


def _read_file(read: OwnConfiguration, where: str, text: str) -> None:
    try:
        document = parse_yaml_document(text)
    except UnreadableDocumentError:
        read.notes.append(f"{where} is left out: it is not one YAML mapping")
        return
    kind = document.values.get("kind")
    if kind == SCHEDULER_KIND:
        _read_scheduler_file(read, where, document.values)
    elif isinstance(kind, str) and kind in FILE_KINDS:
        try:
            model = validate_configuration(FILE_KINDS[kind].model, kind, document, where, {})
        except SettingsError as error:
            lines = sorted({int(line) for line in re.findall(rf"^{re.escape(where)}:(\d+)", str(error), re.MULTILINE)})
            read.notes.append(
                f"{where} is left out: it cannot be used, and `vrampack config check` says why; see lines {lines}"
            )
        else:
            _add_model(read, where, model)
    else:
        read.notes.append(f"{where} is left out: its kind is not known")


def _add_model(read: OwnConfiguration, where: str, model: StrictModel) -> None:
    read.files.append(encode_json_file(f"configuration/{where}.json", model.model_dump(mode="json")))
    if isinstance(model, ExtenderConfiguration):
        read.extender = read.extender or model
    elif isinstance(model, PlacementPolicy):
        read.policy = read.policy or model


def _read_scheduler_file(read: OwnConfiguration, where: str, values: Mapping[str, Any]) -> None:
    try:
        fields = msgspec.convert(values, SchedulerConfigurationFields, strict=False)
    except msgspec.ValidationError as error:
        read.notes.append(f"{where} is left out: {error}")
        return
    extenders = [
        msgspec.structs.replace(each, url_prefix=redact_text(each.url_prefix or "")) for each in fields.extenders or ()
    ]
    read.files.append(
        encode_json_file(f"configuration/{where}.json", msgspec.structs.replace(fields, extenders=extenders))
    )
