"""The kinds of objects in the embedded API server, and their place in its URLs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Object: TypeAlias = dict[str, Any]  # Any: the store keeps whatever JSON its clients send, as etcd does
"""One API object. It is replaced, never changed, once it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """One resource, as discovery names it."""

    name: str
    plural: str
    short_name: str
    group: str = ""
    """Empty for the core group, whose URLs and texts leave it out."""
    is_namespaced: bool = True
    is_in_category_all: bool = False
    """Whether `kubectl get all` includes it."""
    subresources: tuple[Literal["status", "scale"], ...] = ("status",)
    selectable_fields: tuple[str, ...] = ()
    """The fields that a field selector may use, besides name and namespace."""

    @property
    def group_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def path_prefix(self) -> str:
        """Where the URLs of its group begin."""
        return f"/apis/{self.group}/v1" if self.group else "/api/v1"

    @property
    def qualified_plural(self) -> str:
        """The name in refusals: `pods`, `statefulsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_name(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def add_type_meta(self, item: Object) -> Object:
        """The object as it is returned alone or in a watch; inside a list it has no kind."""
        return {"kind": self.name, "apiVersion": self.group_version} | item

    def build_key(self, namespace: str, name: str) -> str:
        """The key by which objects are listed, in etcd's order: `a-b/c` comes before `a/b`."""
        return f"{namespace}/{name}" if self.is_namespaced else name


POD = ResourceKind(
    name="Pod",
    plural="pods",
    short_name="po",
    is_in_category_all=True,
    selectable_fields=("spec.nodeName", "spec.schedulerName", "status.phase"),
)
NODE = ResourceKind(
    name="Node", plural="nodes", short_name="no", is_namespaced=False, selectable_fields=("spec.unschedulable",)
)
EVENT = ResourceKind(
    name="Event",
    plural="events",
    short_name="ev",
    subresources=(),
    selectable_fields=(
        "involvedObject.apiVersion",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "type",
    ),
)
STATEFUL_SET = ResourceKind(
    name="StatefulSet",
    plural="statefulsets",
    short_name="sts",
    group="apps",
    is_in_category_all=True,
    subresources=("status", "scale"),
)
DEPLOYMENT = ResourceKind(
    name="Deployment",
    plural="deployments",
    short_name="deploy",
    group="apps",
    is_in_category_all=True,
    subresources=("status", "scale"),
)
WORKLOAD_KINDS = (DEPLOYMENT, STATEFUL_SET)

KINDS_BY_PLURAL = {kind.plural: kind for kind in (POD, NODE, EVENT, DEPLOYMENT, STATEFUL_SET)}
"""Kinds by their name in URLs."""
