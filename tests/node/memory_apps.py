"""Pods that take memory of the simulated card, and what its driver counts."""

from __future__ import annotations

from typing import Any

from tests.fakes.driver.driver import MIB, FakeDriver
from tests.node.images import CUDA_NAME
from tests.node.pods import a_set

APP = "app-3g-v1"
USED_MIB = 3193


def an_app(name: str, *arguments: str, replicas: int = 1) -> dict[str, Any]:
    """Pods of 4 units that run the program of the image."""
    made = a_set(name, main=4)
    made["spec"] |= {"replicas": replicas, "podManagementPolicy": "Parallel"}
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container |= {"image": CUDA_NAME, "command": ["app", *arguments]}
    return made


def in_use_mib(driver: FakeDriver) -> float:
    """Of the card, as the driver counts."""
    return driver.state().cards[0].used / MIB
