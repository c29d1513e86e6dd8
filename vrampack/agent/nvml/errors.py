"""Errors of the driver: it refused a call, or did not answer."""

from __future__ import annotations

LOST_CODES = (15, 16)
"""NVML's "GPU is lost" and "reset required": later calls fail as well until an operator acts."""

OUTDATED_CODE = 18
"""NVML's "RM has detected an NVML/RM version mismatch": the driver was replaced, the library in this process was not."""


class DriverError(Exception):
    """A call failed; `code` is NVML's number for it, None when there was no answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_lost(self) -> bool:
        """Whether the card is gone, as opposed to one call that failed."""
        return self.code in LOST_CODES

    @property
    def is_outdated(self) -> bool:
        """Whether only a new process can talk to this driver."""
        return self.code == OUTDATED_CODE


class DriverHungError(DriverError):
    """No answer in time. The call may still return; until then calls of the same kind are refused at once."""


class NoDriverError(DriverError):
    """There is no driver on this node."""


class HiddenDriverError(DriverError):
    """The node's kernel has the driver, but this process lacks its library or its devices."""
