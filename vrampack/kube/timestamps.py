"""Times as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """Unix time as RFC 3339, in UTC and whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
