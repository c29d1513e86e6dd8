"""The embedded scheduler's settings: the parts of the shipped KubeSchedulerConfiguration that concern the extender.

Unsupported settings are refused with the field's name. `preemptVerb` is ignored, as nothing is preempted here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Self

import yaml

DEFAULT_TIMEOUT_SECONDS = 5.0
"""How long a kube-scheduler waits when `httpTimeout` is not set."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Whose pods are scheduled, and which extender is asked. An empty verb is never called."""

    url_prefix: str
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    filter_verb: str = "filter"
    prioritize_verb: str = "prioritize"
    bind_verb: str = "bind"
    weight: int = 1
    http_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    managed_resources: frozenset[str] = field(default_factory=frozenset)
    """Only pods that name one of these are sent; empty: every pod is."""
    ignored_resources: frozenset[str] = field(default_factory=frozenset)
    """Resources that the scheduler itself does not count (`ignoredByScheduler`)."""

    @classmethod
    def from_yaml(cls, text: str, *, url_prefix: str | None = None) -> Self:
        """Read a KubeSchedulerConfiguration with one extender; `url_prefix` replaces the one in it.

        Raises `ValueError` naming the field that is missing or not supported.
        """
        given = yaml.safe_load(text)
        if not isinstance(given, dict) or given.get("kind") != "KubeSchedulerConfiguration":
            raise ValueError("kind: this is not a KubeSchedulerConfiguration")
        extenders = given.get("extenders") or []
        if len(extenders) != 1:
            raise ValueError(f"extenders: exactly one is needed, but {len(extenders)} are listed")
        extender = extenders[0]
        _check_extender(extender)
        managed = extender.get("managedResources") or []
        return cls(
            url_prefix=url_prefix or extender["urlPrefix"],
            scheduler_names=tuple(
                profile.get("schedulerName", "default-scheduler") for profile in given.get("profiles") or [{}]
            ),
            filter_verb=extender.get("filterVerb", ""),
            prioritize_verb=extender.get("prioritizeVerb", ""),
            bind_verb=extender.get("bindVerb", ""),
            weight=extender.get("weight", 0),
            http_timeout_seconds=_parse_duration(extender.get("httpTimeout")),
            managed_resources=frozenset(item["name"] for item in managed),
            ignored_resources=frozenset(item["name"] for item in managed if item.get("ignoredByScheduler")),
        )


def _check_extender(extender: dict[str, Any]) -> None:  # Any: YAML as it was typed
    if not extender.get("urlPrefix"):
        raise ValueError("extenders[0].urlPrefix: required")
    if not extender.get("nodeCacheCapable"):
        raise ValueError("extenders[0].nodeCacheCapable: only true is supported here (names, not whole nodes)")
    if extender.get("ignorable"):
        raise ValueError("extenders[0].ignorable: only false is supported here")
    if extender.get("enableHTTPS"):
        raise ValueError("extenders[0].enableHTTPS: only plain HTTP is supported here")
    if extender.get("prioritizeVerb") and extender.get("weight", 0) <= 0:
        raise ValueError("extenders[0].weight: must be positive where there is a prioritizeVerb")


def _parse_duration(duration: str | None) -> float:
    """The seconds of a Go duration such as `5s` or `1m30s`; 0 means the default, as in the scheduler."""
    if not duration:
        return DEFAULT_TIMEOUT_SECONDS
    parts = _DURATION.findall(duration)
    if "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"extenders[0].httpTimeout: {duration!r} is not a duration such as 5s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) or DEFAULT_TIMEOUT_SECONDS
