"""The device manager's state: devices and their health, which are taken, and by which container.

`held` is the truth (it goes to the checkpoint); `taken` is what choosing ids looks at, marked before Allocate is
called and rebuilt from `held` when that fails.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vrampack.agent.kubelet.generated import deviceplugin_pb2 as wire

NO_NUMA = "-1"


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Device ids of one resource that a container has, and what the plugin answered when it got them."""

    ids: frozenset[str]
    answer: wire.ContainerAllocateResponse


Resources = dict[str, AllocatedDevices]


@dataclass(slots=True)
class DeviceCheckpoint:
    """Everything by resource name; `held` by pod uid and container name."""

    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    taken: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, dict[str, Resources]] = field(default_factory=dict)

    def receive(self, resource: str, devices: Collection[wire.Device]) -> None:
        """A whole list from a plugin, *any* plugin whose stream for this resource is open."""
        self.healthy[resource] = {device.ID for device in devices if device.health == "Healthy"}
        self.unhealthy[resource] = {device.ID for device in devices if device.health != "Healthy"}

    def mark_unhealthy(self, resource: str) -> None:
        gone = self.healthy.get(resource, set())
        self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | gone

    def drop_resource(self, resource: str) -> None:
        """The grace period of a stopped plugin is over: the resource leaves the node."""
        self.healthy.pop(resource, None)
        self.unhealthy.pop(resource, None)

    def knows(self, resource: str) -> bool:
        """Whether kubelet treats it as a device resource."""
        return resource in self.healthy or resource in self.taken

    def allocate_devices(self, uid: str, container: str, resource: str, held: AllocatedDevices) -> None:
        self.held.setdefault(uid, {}).setdefault(container, {})[resource] = held

    def held_by(self, uid: str, container: str) -> Resources:
        return self.held.get(uid, {}).get(container, {})

    def forget_all_but(self, uids: Collection[str]) -> None:
        """Free the ids of pods that are gone; done at the next look-up, not when the pod goes."""
        gone = self.held.keys() - set(uids)
        for uid in gone:
            del self.held[uid]
        if gone:
            self.recount()

    def recount(self) -> None:
        self.taken = {}
        for _, _, resource, held in self._entries():
            self.taken.setdefault(resource, set()).update(held.ids)

    def write(self, path: Path) -> None:
        """Write the checkpoint, in kubelet's format except for the checksum."""
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {NO_NUMA: sorted(held.ids)},
                "AllocResp": base64.b64encode(held.answer.SerializeToString()).decode(),
            }
            for uid, container, resource, held in self._entries()
        ]
        registered = {resource: sorted(ids) for resource, ids in self.healthy.items()}
        body = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}
        # As kubelet does: a reader never finds half a file.
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(json.dumps(body))
        fresh.replace(path)

    def _entries(self) -> Iterator[tuple[str, str, str, AllocatedDevices]]:
        for uid, containers in self.held.items():
            for container, resources in containers.items():
                for resource, held in resources.items():
                    yield uid, container, resource, held


def read_checkpoint(path: Path) -> DeviceCheckpoint:
    """The state of a kubelet that has just started: who has which ids, and resources without any device."""
    books = DeviceCheckpoint()
    if not path.exists():
        return books
    body = json.loads(path.read_text())["Data"]
    for entry in body["PodDeviceEntries"]:
        answer = wire.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
        held = AllocatedDevices(frozenset(entry["DeviceIDs"][NO_NUMA]), answer)
        books.allocate_devices(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], held)
    books.recount()
    for resource in body["RegisteredDevices"]:
        books.healthy[resource], books.unhealthy[resource] = set(), set()
    return books
