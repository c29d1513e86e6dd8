"""The calls of NVML that the agent makes, through `nvidia-ml-py`. Each may block; `nvml_driver.py` calls them in threads.

The library is opened once and stays open, which also keeps the driver loaded on machines without the persistence
daemon. Errors are raised as `DriverError` with NVML's code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pynvml

from vrampack.agent.nvml.conditions import read_gpu_condition
from vrampack.agent.nvml.driver import (
    CgroupLimit,
    Gpu,
    GpuCondition,
    GpuInventory,
    GpuProcess,
    GpuUsage,
    GpuUtilization,
    UnreadableGpu,
    Xid,
)
from vrampack.agent.nvml.errors import DriverError, HiddenDriverError, NoDriverError
from vrampack.agent.nvml.utilization import UtilizationReader
from vrampack.cards.units import MIB

Handle: TypeAlias = Any  # a ctypes pointer; nvidia-ml-py has no types

NO_INSTANCE = 0xFFFFFFFF
"""An event that belongs to no MIG instance."""
MAX_EVENTS = 64
"""The most events read at once: a card with more of them is unhealthy after the first anyway."""
_NO_DRIVER_CODES = (
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)
_CLOSED_CODES = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, *_NO_DRIVER_CODES)
_UNSUPPORTED_CODES = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlSession:
    """One open NVML. Safe to call from several threads: shared values are replaced as a whole."""

    def __init__(self, *, pci_devices: Path, kernel_module: Path) -> None:
        """`kernel_module` exists while the kernel has NVIDIA's driver."""
        self._pci_devices = pci_devices
        self._kernel_module = kernel_module
        self._opening = threading.Lock()
        self._is_open = False
        self._gpu_by_uuid: dict[str, Gpu] = {}
        """The model and the memory of a card, read once. Its numbers are not: it may come back at another place."""
        self._uuid_by_index: dict[int, str] = {}
        """Which GPU was at which index when it could last be read."""
        self._watchable: dict[str, Handle] = {}
        self._inventory = GpuInventory((), "")
        self._utilization = UtilizationReader()
        self._events: Handle | None = None
        self._watched: frozenset[str] = frozenset()

    def list_gpus(self) -> GpuInventory:
        """Every card. One that cannot be described does not hide the others."""
        with self._opened("the list of cards"):
            version = pynvml.nvmlSystemGetDriverVersion()
            is_confidential = _has_confidential_computing()
            cards: list[Gpu] = []
            unreadable: list[UnreadableGpu] = []
            watchable: dict[str, Handle] = {}
            cut: set[str] = set()
            for index in range(pynvml.nvmlDeviceGetCount()):
                try:
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    gpu = self._read_gpu(handle, index)
                    instances = self._list_instances(handle, gpu)
                except pynvml.NVMLError as error:
                    unreadable.append(
                        UnreadableGpu(index, DriverError(str(error), error.value), self._uuid_by_index.get(index))
                    )
                    continue
                watchable[gpu.uuid] = handle
                if instances is None:
                    cards.append(gpu)
                else:
                    cut.add(gpu.uuid)
                    cards += instances
        self._watchable = watchable
        self._inventory = GpuInventory(
            tuple(cards), version, frozenset(cut), tuple(unreadable), has_confidential_computing=is_confidential
        )
        return self._inventory

    def check_gpu(self, uuid: str) -> None:
        with self._opened(f"card {uuid}"):
            pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))

    def read_condition(self, uuid: str) -> GpuCondition:
        with self._opened(f"condition of {uuid}"):
            return read_gpu_condition(pynvml.nvmlDeviceGetHandleByUUID(uuid))

    def wait_for_xids(self, timeout_seconds: float) -> tuple[Xid, ...] | None:
        """None when there is no card to wait for."""
        with self._opened("events"):
            self._register_events()
            if not self._watched:
                return None
            told: list[Xid] = []
            timeout_ms = int(timeout_seconds * 1000)
            while len(told) < MAX_EVENTS:
                try:
                    event = pynvml.nvmlEventSetWait_v2(self._events, 0 if told else timeout_ms)
                except pynvml.NVMLError_Timeout:
                    break
                told.append(_to_xid(event))
            return tuple(told)

    def read_usage(self) -> tuple[GpuUsage, ...]:
        found = []
        with self._opened("memory in use"):
            for card in self._inventory.gpus:
                try:
                    found.append(_read_gpu_usage(card.uuid, pynvml.nvmlDeviceGetHandleByUUID(card.uuid)))
                except pynvml.NVMLError:
                    continue  # the card's check reports the reason
        return tuple(found)

    def read_utilization(self) -> tuple[GpuUtilization, ...]:
        with self._opened("utilization"):
            return self._utilization.read_gpus([card.uuid for card in self._inventory.gpus if card.mig_parent is None])

    def set_limit(self, cgroup_path: str, uuid: str, mib: int | None) -> None:
        """Set the hard limit. The soft limit stays 0: one that is not lifted before the cgroup dies leaks to its parent."""
        hard = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if mib is None else mib * MIB
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(cgroup_path.encode(), 0, hard)
        with self._opened(f"a limit of card {uuid} for {cgroup_path}"):
            pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), limits)

    def read_limit(self, cgroup_path: str, uuid: str) -> CgroupLimit:
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(cgroup_path.encode())
        with self._opened(f"the limit of card {uuid} for {cgroup_path}"):
            pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), limits)
        hard = None if limits.hardLimit == pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX else int(limits.hardLimit)
        return CgroupLimit(hard, int(limits.currentUsed))

    @contextmanager
    def _opened(self, subject: str) -> Iterator[None]:
        try:
            with self._opening:
                if not self._is_open:
                    pynvml.nvmlInit()
                    self._events, self._watched = None, frozenset()
                    self._is_open = True
            yield
        except pynvml.NVMLError as error:
            if error.value in _CLOSED_CODES:
                self._is_open = False
            raise self._build_error(subject, error) from error

    def _build_error(self, subject: str, error: pynvml.NVMLError) -> DriverError:
        if error.value not in _NO_DRIVER_CODES:
            return DriverError(f"{subject}: {error}", error.value)
        kind = HiddenDriverError if self._kernel_module.exists() else NoDriverError
        return kind(f"{subject}: {error}", error.value)

    def _read_gpu(self, handle: Handle, index: int) -> Gpu:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        self._uuid_by_index[index] = uuid
        known = self._gpu_by_uuid.get(uuid)
        pci_bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
        gpu = Gpu(
            uuid=uuid,
            index=index,
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            pci_bus_id=pci_bus_id,
            model=known.model if known is not None else pynvml.nvmlDeviceGetName(handle),
            memory_mib=known.memory_mib if known is not None else _read_memory_mib(handle),
            numa=_read_numa_node(self._pci_devices, pci_bus_id),
        )
        self._gpu_by_uuid[uuid] = gpu
        return gpu

    def _list_instances(self, handle: Handle, gpu: Gpu) -> list[Gpu] | None:
        """The MIG instances of a GPU; None: it is not in MIG mode and is a card itself."""
        if not _is_mig_enabled(handle):
            return None
        found = []
        for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                continue  # an empty slot
            found.append(self._read_instance(instance, gpu, slot))
        return found

    def _read_instance(self, handle: Handle, gpu: Gpu, slot: int) -> Gpu:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        known = self._gpu_by_uuid.get(uuid)
        instance = replace(
            gpu,
            uuid=uuid,
            index=(gpu.index + 1) * 100 + slot,
            model=known.model if known is not None else pynvml.nvmlDeviceGetName(handle),
            memory_mib=known.memory_mib if known is not None else _read_memory_mib(handle),
            mig_parent=gpu.uuid,
            gpu_instance=pynvml.nvmlDeviceGetGpuInstanceId(handle),
            compute_instance=pynvml.nvmlDeviceGetComputeInstanceId(handle),
        )
        self._gpu_by_uuid[uuid] = instance
        return instance

    def _register_events(self) -> None:
        """Register new cards for events; a card that cannot be registered is judged by its checks alone."""
        if self._events is None:
            self._events = pynvml.nvmlEventSetCreate()
        watchable = self._watchable
        watched = self._watched & watchable.keys()
        for uuid in sorted(watchable.keys() - watched):
            try:
                pynvml.nvmlDeviceRegisterEvents(watchable[uuid], pynvml.nvmlEventTypeXidCriticalError, self._events)
            except pynvml.NVMLError as error:
                if error.value not in _UNSUPPORTED_CODES:
                    continue  # tried again at the next wait
            watched |= {uuid}
        self._watched = frozenset(watched)


def _to_xid(event: Any) -> Xid:  # noqa: ANN401 - a ctypes structure
    try:
        uuid = pynvml.nvmlDeviceGetUUID(event.device)
    except pynvml.NVMLError:
        uuid = None
    gpu_instance, compute_instance = int(event.gpuInstanceId), int(event.computeInstanceId)
    return Xid(
        number=int(event.eventData),
        uuid=uuid,
        gpu_instance=None if gpu_instance == NO_INSTANCE else gpu_instance,
        compute_instance=None if compute_instance == NO_INSTANCE else compute_instance,
    )


def _read_gpu_usage(uuid: str, handle: Handle) -> GpuUsage:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError_FunctionNotFound:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError as error:
        if error.value not in _UNSUPPORTED_CODES:
            raise
        processes = []
    shares = (GpuProcess(int(process.pid), process.usedGpuMemory) for process in processes)
    return GpuUsage(uuid, int(memory.used), int(memory.total), tuple(shares))


def _has_confidential_computing() -> bool:
    """Whether confidential computing is on. Libraries before about 535 lack the call; then, or if it fails, it counts as off."""
    try:
        state = pynvml.nvmlSystemGetConfComputeState()
    except pynvml.NVMLError:
        return False
    return bool(state.ccFeature == pynvml.NVML_CC_SYSTEM_FEATURE_ENABLED)


def _read_memory_mib(handle: Handle) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB


def _is_mig_enabled(handle: Handle) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError as error:
        if error.value not in _UNSUPPORTED_CODES:
            raise
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _read_numa_node(pci_devices: Path, pci_bus_id: str) -> int | None:
    """The NUMA node of the CPUs that the card is attached to. NVML's own call is about GPU memory that is itself a node."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    try:
        node = int((pci_devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
