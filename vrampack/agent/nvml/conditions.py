"""What NVML says about a GPU's health, call by call: an older driver or a GPU without ECC answers only some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import pynvml

from vrampack.agent.nvml.driver import GpuCondition

Handle: TypeAlias = Any  # a ctypes pointer; nvidia-ml-py has no types
Answer = TypeVar("Answer")


def read_gpu_condition(handle: Handle) -> GpuCondition:
    """The GPU's condition. An unsupported or failed call leaves its field unknown: `check_gpu` is what notices a lost GPU."""
    remapped = _ask(lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    return GpuCondition(
        recovery_action=_ask(lambda: _read_recovery_action(handle)),
        is_remap_pending=None if remapped is None else bool(remapped[2]),
        is_remap_failed=None if remapped is None else bool(remapped[3]),
        is_retirement_pending=_ask(lambda: bool(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
        uncorrected_errors=_ask(
            lambda: int(
                pynvml.nvmlDeviceGetTotalEccErrors(
                    handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
                )
            )
        ),
    )


def _read_recovery_action(handle: Handle) -> int | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(field.value.uiVal) if field.nvmlReturn == pynvml.NVML_SUCCESS else None


def _ask(call: Callable[[], Answer]) -> Answer | None:
    try:
        return call()
    except pynvml.NVMLError:
        return None
