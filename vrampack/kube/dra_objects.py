"""The fields that we read from objects of dynamic resource allocation, `resource.k8s.io`."""

from __future__ import annotations

import msgspec

from vrampack.kube.objects import ObjectMeta


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str | None = None


class DeviceClassObject(msgspec.Struct, frozen=True):
    """A resource.k8s.io/v1.DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(msgspec.Struct, frozen=True):
    string: str | None = None


class SliceDevice(msgspec.Struct, frozen=True):
    attributes: dict[str, DeviceAttribute] | None = None


class ResourceSliceSpec(msgspec.Struct, frozen=True):
    driver: str = ""
    devices: list[SliceDevice] | None = None


class ResourceSliceObject(msgspec.Struct, frozen=True):
    """A resource.k8s.io/v1.ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
