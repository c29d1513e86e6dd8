"""What the fence raises."""

from __future__ import annotations


class RefusedStartError(Exception):
    """A container may not start; the text is for the pod's owner."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """One of `fence.REASONS`, for the metric."""
        self.text = text
