"""How the driver says no, or says nothing."""

from __future__ import annotations


class DriverError(Exception):
    """A call failed; `code` is NVML's number for it, None when there was no answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class DriverHungError(DriverError):
    """No answer in time. The call may still come back; until then its like are refused at once."""


class NoDriverError(DriverError):
    """There is no driver on this node, or none in this container."""
