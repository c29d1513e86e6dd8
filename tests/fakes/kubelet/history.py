"""What happened between kubelet and its plugins, over all of kubelet's lives."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PluginRegistration:
    """A Register call that kubelet accepted."""

    resource: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class PluginCall:
    """One call that kubelet made to a plugin; `error` is empty when it was answered."""

    method: str
    endpoint: str
    device_ids: tuple[str, ...]
    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class KubeletHistory:
    """Both in the order in which they ended."""

    registrations: list[PluginRegistration] = field(default_factory=list)
    calls: list[PluginCall] = field(default_factory=list)
