"""The version, once for the code; `pyproject.toml` carries the same, and a test compares the two."""

from __future__ import annotations

VERSION = "0.1.0"
