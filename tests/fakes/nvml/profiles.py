"""Machines as they are sold: what NVML reports about their cards. Memory is what such cards report, not the data sheet's figure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

V100_16130_MIB = 16130


@dataclass(frozen=True, slots=True)
class StubInstance:
    """One MIG instance of a card."""

    uuid: str
    slot: int
    gpu_instance: int
    memory_mib: int
    name: str
    compute_instance: int = 0


@dataclass(frozen=True, slots=True)
class StubGpu:
    """One card; NVML's index of it is its place in the machine."""

    uuid: str
    minor: int
    pci_bus_id: str
    memory_mib: int
    name: str
    is_cut: bool = False
    instances: tuple[StubInstance, ...] = ()


def stub_gpus(name: str, memory_mib: int, count: int = 1, *, first: int = 0) -> tuple[StubGpu, ...]:
    """Equal cards; their uuids are the same in every run."""
    places = range(first, first + count)
    return tuple(
        StubGpu(
            uuid=named("GPU", f"{name}/{place}"),
            minor=place,
            pci_bus_id=f"00000000:{place + 1:02X}:00.0",
            memory_mib=memory_mib,
            name=name,
        )
        for place in places
    )


def partition_gpu(gpu: StubGpu, *parts: tuple[str, int]) -> StubGpu:
    """The card in MIG mode, cut into parts of (profile, MiB); a second cut gives other instances."""
    instances = tuple(
        StubInstance(
            uuid=named("MIG", f"{gpu.uuid}/{','.join(profile for profile, _ in parts)}/{slot}"),
            slot=slot,
            gpu_instance=slot + 1,
            memory_mib=memory_mib,
            name=f"{gpu.name} MIG {profile}",
        )
        for slot, (profile, memory_mib) in enumerate(parts)
    )
    return StubGpu(gpu.uuid, gpu.minor, gpu.pci_bus_id, gpu.memory_mib, gpu.name, True, instances)  # noqa: FBT003


def named(kind: str, seed: str) -> str:
    return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_OID, seed)}"


A100_PARTS = (("3g.20gb", 19968), ("2g.10gb", 9856), ("1g.5gb", 4864), ("1g.5gb", 4864))

PROFILES: dict[str, tuple[StubGpu, ...]] = {
    "none": (),
    "t4": stub_gpus("Tesla T4", 15109),
    "t4-15360": stub_gpus("Tesla T4", 15360),
    "v100": stub_gpus("Tesla V100-SXM2-16GB", V100_16130_MIB),
    "v100x8": stub_gpus("Tesla V100-SXM2-16GB", V100_16130_MIB, 8),
    "a10-l4": stub_gpus("NVIDIA A10", 23028) + stub_gpus("NVIDIA L4", 23034, first=1),
    "a100-mig": tuple(partition_gpu(gpu, *A100_PARTS) for gpu in stub_gpus("NVIDIA A100-SXM4-40GB", 40960)),
    "h200x8": stub_gpus("NVIDIA H200", 143771, 8),
}
