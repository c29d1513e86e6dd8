"""What can go wrong before the service runs."""

from __future__ import annotations


class SettingsError(ValueError):
    """The configuration file is not usable; the message names file, path and fix, one line per fault."""
