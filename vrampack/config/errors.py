"""The error of a file that people write."""

from __future__ import annotations


class SettingsError(ValueError):
    """The configuration file is not usable; the message names file, line, path and fix, one line per fault."""
