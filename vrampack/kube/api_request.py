"""One request to the API server, before it is bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlencode

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""Merges lists by name or type, so that one condition or webhook of several can be changed."""


@dataclass(slots=True)
class ApiRequest:
    """What is asked of the API server, and whether it may have heard."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    patch: str = MERGE_PATCH
    """How a PATCH is merged."""
    silence_seconds: float | None = None
    """How long the server of a watch may send nothing; None for a call, whose caller sets the time-out."""
    is_sent: bool = False
    """Set before the first byte is written, and never taken back: a call that fails while this is False changed nothing."""

    @property
    def target(self) -> str:
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")

    @property
    def content_type(self) -> str:
        return self.patch if self.method == "PATCH" else "application/json"


PodGroupResource = Literal[
    "podgroups.v1beta1.scheduling.k8s.io",
    "podgroups.v1alpha3.scheduling.k8s.io",
    "podgroups.v1alpha2.scheduling.k8s.io",
    "podgroups.v1alpha1.scheduling.x-k8s.io",
]
"""As kubectl names them: with version and group, since an API server has some versions of one group."""
GROUPS: Mapping[str, str] = {
    "leases": "/apis/coordination.k8s.io/v1",
    "podgroups.v1beta1.scheduling.k8s.io": "/apis/scheduling.k8s.io/v1beta1",
    "podgroups.v1alpha3.scheduling.k8s.io": "/apis/scheduling.k8s.io/v1alpha3",
    "podgroups.v1alpha2.scheduling.k8s.io": "/apis/scheduling.k8s.io/v1alpha2",
    "podgroups.v1alpha1.scheduling.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1",
}
"""API groups, with the version that is read, of the resources outside the core group. One name may be in several groups."""


def build_path(resource: str, namespace: str = "", name: str = "") -> str:
    """The path of an object, or of all objects of a namespace or of the cluster."""
    group = GROUPS.get(resource, "/api/v1")
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group}{scope}/{resource.partition('.')[0]}" + (f"/{quote(name, safe='')}" if name else "")
