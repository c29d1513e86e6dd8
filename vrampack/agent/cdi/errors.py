"""The error of a spec that cannot be written or read."""

from __future__ import annotations


class CdiError(Exception):
    """The container cannot get the card by CDI; the text says why and what to do."""
