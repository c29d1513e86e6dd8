"""What can keep a spec from being written or read."""

from __future__ import annotations


class CdiError(Exception):
    """The card cannot be handed over by CDI; the text says why and what to do."""
