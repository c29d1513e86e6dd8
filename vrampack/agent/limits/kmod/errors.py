"""The error of the kernel module."""

from __future__ import annotations

from vrampack.agent.limits.errors import LimitError


class ModuleError(LimitError):
    """The module refused, or wrote something that cannot be parsed; the text names the field and what to do."""
