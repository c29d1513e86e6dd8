"""The committed kubelet interfaces are what their `.proto` files generate."""

from __future__ import annotations

from pathlib import Path

from tests.agent.generated_stubs import ROOT, generate_stubs


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    """Made again with the pinned compiler; `python -m tests.agent.generated_stubs` writes it."""
    made = generate_stubs(tmp_path)
    assert len(made) == 6
    assert {path: (tmp_path / path).read_text() for path in made} == {path: (ROOT / path).read_text() for path in made}
