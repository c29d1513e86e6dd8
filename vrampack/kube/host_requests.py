"""Reads CPU and main memory from API objects: what a pod asks of its host, and what a host offers.

The sums are the scheduler's own: https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
Most pods of a cluster write the same few quantities, so each pair is parsed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

import msgspec

from vrampack.cards.host_room import HostResources
from vrampack.cards.units import MIB, parse_quantity
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.objects import ContainerObject, NodeObject, PodSpec

MAX_PARSED_QUANTITIES = 4096
NOTHING = HostResources(0, 0)
_NO_QUANTITY = msgspec.Raw(b"null")


def read_host_request(spec: PodSpec) -> HostResources:
    """What the pod takes of its node once it is bound. An unreadable quantity counts as 0."""
    containers = spec.containers or ()
    if len(containers) == 1 and not spec.init_containers and not spec.overhead:
        return _read_container(containers[0])
    running = sidecars = peak = NOTHING
    for container in spec.init_containers or ():
        asked = _read_container(container)
        if container.restart_policy == "Always":
            sidecars = _add(sidecars, asked)
            asked = NOTHING
        peak = _find_larger(peak, _add(sidecars, asked))
    for container in containers:
        running = _add(running, _read_container(container))
    return _add(_find_larger(_add(running, sidecars), peak), _read_resources(spec.overhead))


def read_allocatable_host(node: NodeObject) -> HostResources | None:
    """What kubelet offers to pods; None if it does not say."""
    allocatable = node.status.allocatable or {}
    if "cpu" not in allocatable or "memory" not in allocatable:
        return None
    return HostResources(_parse(bytes(allocatable["cpu"]))[0], int(_parse(bytes(allocatable["memory"]))[1] // MIB))


def _read_container(container: ContainerObject) -> HostResources:
    return NOTHING if container.resources is None else _read_resources(container.resources.requests)


def _read_resources(quantities: Mapping[str, msgspec.Raw] | None) -> HostResources:
    if not quantities:
        return NOTHING
    return _parse_both(bytes(quantities.get("cpu", _NO_QUANTITY)), bytes(quantities.get("memory", _NO_QUANTITY)))


def _add(one: HostResources, other: HostResources) -> HostResources:
    return HostResources(one.cpu_milli + other.cpu_milli, one.memory_mib + other.memory_mib)


def _find_larger(one: HostResources, other: HostResources) -> HostResources:
    return HostResources(max(one.cpu_milli, other.cpu_milli), max(one.memory_mib, other.memory_mib))


@lru_cache(MAX_PARSED_QUANTITIES)
def _parse_both(cpu: bytes, memory: bytes) -> HostResources:
    return HostResources(_parse(cpu)[0], -(-_parse(memory)[1] // MIB))


@lru_cache(MAX_PARSED_QUANTITIES)
def _parse(raw: bytes) -> tuple[int, int]:
    """A quantity in thousandths and in ones, both rounded up; (0, 0) for an invalid one."""
    try:
        text = msgspec.json.decode(raw)
        value = parse_quantity(text if isinstance(text, str) else str(text))
    except (*UNDECODABLE, ValueError):
        return 0, 0
    return max(0, ceil(value * 1000)), max(0, ceil(value))
