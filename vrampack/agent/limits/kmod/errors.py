"""What the module answers with."""

from __future__ import annotations

from vrampack.agent.limits.errors import LimitError


class ModuleError(LimitError):
    """The module refused, or says what is not understood; the text names the field and what to do."""
