"""The messages about a driver that cannot be asked, or that does not describe a card."""

from __future__ import annotations

from vrampack.agent.nvml.driver import GpuInventory
from vrampack.agent.nvml.errors import DriverError, HiddenDriverError, NoDriverError

HIDDEN_DRIVER_HINT = (
    "the kernel has NVIDIA's driver, but this process was not given its library and devices. In Kubernetes: set "
    "runtimeClassName: nvidia in the agent's DaemonSet where that runtime is not the node's default one, see that the "
    "container toolkit knows the driver root (/run/nvidia/driver under GPU Operator), and restart a pod that is older "
    "than the driver"
)


def describe_unreadable(inventory: GpuInventory) -> str:
    return ", ".join(f"card at index {card.index}: {card.error}" for card in inventory.unreadable)


def describe_failure(error: DriverError) -> str:
    if isinstance(error, HiddenDriverError):
        return f"{error}; {HIDDEN_DRIVER_HINT}"
    return f"{error}; once a driver is installed, restart this pod" if isinstance(error, NoDriverError) else str(error)
