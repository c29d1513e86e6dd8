"""Checks that the configuration of our scheduler has what the extender needs: one sentence for every fault.

It reads only the fields that matter here, with the scheduler's own defaults; kube-scheduler itself refuses unknown
fields. A finding is logged and the service runs, except for one: a decision in filter that another extender would spoil.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from extender.settings import ExtenderConfiguration
from vrampack.config.addresses import parse_address
from vrampack.config.errors import SettingsError

MIN_WEIGHT = 10
"""The least weight for our scores: 0-10 times 10 times this, against 100 times a small weight of each plugin."""
DEFAULT_TIMEOUT_SECONDS = 5.0
"""The scheduler's own `httpTimeout`."""
ALL_NODES_PERCENT = 100
VERBS = ("filter", "prioritize", "bind")
CONFIG_HINT = "--scheduler-config names the KubeSchedulerConfiguration that the scheduler beside the extender runs with"

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(rf"({_PART.pattern})+|0", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, its field, and what to change."""

    text: str
    is_fatal: bool = False
    """The service must not start."""


def check_scheduler_config(path: Path, settings: ExtenderConfiguration, *, decides_in_filter: bool) -> list[Finding]:
    """All faults in the scheduler's configuration. `decides_in_filter`: filter leaves one node for some scheduler.

    Raises `SettingsError` when the file cannot be read as one.
    """
    configuration = _read(path)
    entries = configuration.extenders
    at = _find_own_entry(entries, settings)
    if at is None:
        text = f"extenders: no urlPrefix ends in {settings.listen.url_prefix}, the extender's listen.url_prefix"
        port = (
            f", and has its port {_port_of(settings)}" if len(_find_entries_with_prefix(entries, settings)) > 1 else ""
        )
        missing = f"{text}{port}: the extender is never called; add its entry, or correct the urlPrefix"
        return [Finding(missing), *_check_profiles(configuration)]
    found = chain(
        _check_order(entries, at, decides_in_filter=decides_in_filter), _check_entry(entries[at], at, settings)
    )
    return [*found, *_check_profiles(configuration)]


class _SchedulerModel(BaseModel):
    """Ignores unknown fields, which the scheduler checks; null counts as absent, as it does for the scheduler."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class _ManagedResource(_SchedulerModel):
    name: str = ""
    ignored_by_scheduler: bool = False


class _ExtenderEntry(_SchedulerModel):
    url_prefix: str = ""
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    http_timeout: str = "5s"
    node_cache_capable: bool = False
    managed_resources: list[_ManagedResource] = Field(default=[])
    ignorable: bool = False


class _Profile(_SchedulerModel):
    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None


class _SchedulerConfiguration(_SchedulerModel):
    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    percentage_of_nodes_to_score: int | None = None
    profiles: list[_Profile] = Field(default=[])
    extenders: list[_ExtenderEntry] = Field(default=[])


def _read(path: Path) -> _SchedulerConfiguration:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise SettingsError(f"{path}: not a mapping; {CONFIG_HINT}")
        return _SchedulerConfiguration.model_validate(document)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; {CONFIG_HINT}") from error
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in error.errors())
        raise SettingsError("\n".join(f"{path}: {fault}; {CONFIG_HINT}" for fault in faults)) from error
    except RecursionError as error:
        raise SettingsError(f"{path}: not YAML: it is nested too deeply; {CONFIG_HINT}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not YAML: {error}; {CONFIG_HINT}") from error


def _find_own_entry(entries: list[_ExtenderEntry], settings: ExtenderConfiguration) -> int | None:
    """The position of our entry. Among several with our path the port decides; a single one may go through a proxy."""
    alike = _find_entries_with_prefix(entries, settings)
    if len(alike) > 1:
        alike = [at for at in alike if _path_and_port(entries[at])[1] == _port_of(settings)]
    return alike[0] if alike else None


def _find_entries_with_prefix(entries: list[_ExtenderEntry], settings: ExtenderConfiguration) -> list[int]:
    wanted = settings.listen.url_prefix
    return [at for at, entry in enumerate(entries) if _path_and_port(entry)[0].endswith(wanted)]


def _port_of(settings: ExtenderConfiguration) -> int:
    return parse_address(settings.listen.verbs)[1]


def _path_and_port(entry: _ExtenderEntry) -> tuple[str, int | None]:
    try:
        url = urlsplit(entry.url_prefix)
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        return "", None
    return url.path.rstrip("/"), port


def _check_order(entries: list[_ExtenderEntry], at: int, *, decides_in_filter: bool) -> Iterator[Finding]:
    """Extenders filter in list order, and each receives only the nodes that the previous one accepted."""
    for behind in range(at + 1, len(entries)) if decides_in_filter else ():
        yield Finding(
            f"extenders[{behind}] ({entries[behind].url_prefix}) comes after the extender, which decides in filter: "
            f"it would be asked about one node only; move extenders[{at}] to the end, or set decide: prioritize",
            is_fatal=True,
        )


def _check_entry(entry: _ExtenderEntry, at: int, settings: ExtenderConfiguration) -> Iterator[Finding]:
    where = f"extenders[{at}]"
    for verb in VERBS:
        yield from _check_verb(f"{where}.{verb}Verb", getattr(entry, f"{verb}_verb"), verb)
    if not entry.node_cache_capable:
        yield Finding(
            f"{where}.nodeCacheCapable is not true: whole nodes are sent, which the extender answers with an error; "
            "set it to true"
        )
    yield from _check_managed_resources(f"{where}.managedResources", entry.managed_resources, settings.resources.memory)
    yield from _check_timeout(f"{where}.httpTimeout", entry.http_timeout, settings.deadlines.bind_seconds)
    if entry.ignorable:
        yield Finding(
            f"{where}.ignorable is true: without an answer the scheduler binds by itself, to a node and to no card; "
            "set it to false"
        )
    if entry.weight < MIN_WEIGHT:
        yield Finding(
            f"{where}.weight is {entry.weight}: the scheduler's own scores outweigh packing; set it to {MIN_WEIGHT} or more"
        )


def _check_verb(field: str, given: str, wanted: str) -> Iterator[Finding]:
    if given != wanted:
        is_now = f"is {given}, which the extender does not know" if given else "is missing"
        yield Finding(f"{field} {is_now}; set it to {wanted}")


def _check_managed_resources(field: str, resources: list[_ManagedResource], resource: str) -> Iterator[Finding]:
    ours = [managed for managed in resources if managed.name == resource]
    if not ours:
        sent = "no pod that asks for it is sent" if resources else "every pod of the cluster is sent"
        yield Finding(f"{field} does not contain {resource}: {sent} to the extender; add `- name: {resource}`")
    if any(managed.ignored_by_scheduler for managed in ours):
        yield Finding(
            f"{field}: ignoredByScheduler is true for {resource}: node totals no longer protect anything, and "
            "preemption does not work; set it to false"
        )


def _check_timeout(field: str, text: str, bind_seconds: float) -> Iterator[Finding]:
    seconds = _parse_duration(text)
    if seconds is None:
        yield Finding(f"{field} is {text!r}, which is not a duration; set it to 5s")
    elif seconds <= bind_seconds:
        yield Finding(
            f"{field} is {text}, not more than deadlines.bind_seconds ({bind_seconds:g} s): the scheduler gives up on "
            "binds that succeed; raise it, or lower deadlines.bind_seconds"
        )


def _parse_duration(text: str) -> float | None:
    """Seconds of a Go duration, None when it is not one. The scheduler replaces 0 by its default."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)) or DEFAULT_TIMEOUT_SECONDS


def _check_profiles(configuration: _SchedulerConfiguration) -> Iterator[Finding]:
    """A configuration without profiles keeps the scheduler's defaults on purpose, and gets no finding."""
    for at, profile in enumerate(configuration.profiles):
        own, common = profile.percentage_of_nodes_to_score, configuration.percentage_of_nodes_to_score
        percentage = common if own is None else own
        if percentage != ALL_NODES_PERCENT:
            is_now = "is missing" if percentage is None else f"is {percentage}"
            yield Finding(
                f"profiles[{at}].percentageOfNodesToScore {is_now} ({profile.scheduler_name}): among more than 100 nodes "
                "the scheduler stops looking early, often before the tightest card; set it to 100"
            )
