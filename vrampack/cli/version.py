"""The version for the code; `pyproject.toml` has the same one, and a test compares the two."""

from __future__ import annotations

VERSION = "0.1.0"
