"""How busy each process keeps a GPU: `nvmlDeviceGetProcessUtilization`, which returns samples since a given time.

A process that was idle since then has no sample, and with none at all the answer is NVML_ERROR_NOT_FOUND. GPUs in MIG mode and
vGPUs answer NVML_ERROR_NOT_SUPPORTED. Some drivers fill the rest of the buffer with garbage (Syllo/nvtop#110, NVIDIA/DCGM#83),
so a sample counts only if it is plausible. NVML's times are microseconds since the epoch. The reader never asks for samples after
the present: otherwise one garbage time, or a clock that was set back, would hide every later sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import pynvml

from vrampack.agent.nvml.driver import GpuUtilization

FULL_PERCENT = 100
MAX_AHEAD_SECONDS = 60.0
"""A sample from further in the future is garbage."""
_MICROSECONDS = 1_000_000
_IDLE_CODES = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND)
"""nvidia-ml-py raises the first when there was nothing to copy."""


class Sample(Protocol):
    """The fields read from an `nvmlProcessUtilizationSample_t`."""

    pid: int
    timeStamp: int  # noqa: N815 - NVML's own spelling
    smUtil: int  # noqa: N815


class UtilizationReader:
    """Reads new samples: remembers for each GPU up to when it was read."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._read_until: dict[str, int] = {}
        """The time, on NVML's clock, of the last sample by uuid; 0 asks for all that the driver still has."""

    def read_gpus(self, uuids: Sequence[str]) -> tuple[GpuUtilization, ...]:
        """The utilization of these GPUs, without those that do not report it."""
        self._read_until = {uuid: self._read_until.get(uuid, 0) for uuid in uuids}
        found = ((uuid, self._read_gpu(uuid)) for uuid in uuids)
        return tuple(GpuUtilization(uuid, percent) for uuid, percent in found if percent is not None)

    def _read_gpu(self, uuid: str) -> Mapping[int, int] | None:
        now = self._now()
        since = min(self._read_until[uuid], int(now * _MICROSECONDS))
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(pynvml.nvmlDeviceGetHandleByUUID(uuid), since)
        except pynvml.NVMLError as error:
            return {} if error.value in _IDLE_CODES else None
        newest = choose_newest(samples, since, until=int((now + MAX_AHEAD_SECONDS) * _MICROSECONDS))
        self._read_until[uuid] = max((int(sample.timeStamp) for sample in newest.values()), default=since)
        return {pid: int(sample.smUtil) for pid, sample in newest.items()}


def choose_newest(samples: Iterable[Sample], since: int, *, until: int) -> dict[int, Sample]:
    """The last plausible sample of each process."""
    newest: dict[int, Sample] = {}
    for sample in samples:
        is_plausible = sample.pid > 0 and since < sample.timeStamp <= until and 0 <= sample.smUtil <= FULL_PERCENT
        if is_plausible and (sample.pid not in newest or newest[sample.pid].timeStamp < sample.timeStamp):
            newest[int(sample.pid)] = sample
    return newest
