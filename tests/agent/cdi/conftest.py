"""A probe of the runtime first watches for other readers; in these tests there are none."""

from __future__ import annotations

import pytest

from vrampack.agent.cdi import runtime_probe, spec_publisher


@pytest.fixture(autouse=True)
def _short_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_probe, "QUIET_SECONDS", 0.02)


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """For runtimes that do not read: they are waited for to the end."""
    monkeypatch.setattr(runtime_probe, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(spec_publisher, "READ_SECONDS", 0.3)
