"""A policy is one module and one row of the registry: whatever else needs its name reads it there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

import policies
from extender.policy_settings import PolicyTuning
from policies.registry import POLICIES

FOLDER = Path(str(policies.__file__)).parent
MACHINERY = {
    "__init__",
    "adjusted_policy",
    "evaluate",
    "open_cards",
    "outlook",
    "policy",
    "registry",
    "trial_placement",
    "tuning",
    "weights",
}
"""The modules that are not a policy."""


def list_imports(path: Path) -> set[str]:
    """Modules of `policies` that the file imports."""
    imports = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "policies":
            imports |= {f"policies.{each.name}" for each in node.names} if node.module == "policies" else {node.module}
        elif isinstance(node, ast.Import):
            imports |= {each.name for each in node.names if each.name.split(".")[0] == "policies"}
    return imports


def test_every_policy_has_a_row_and_every_row_its_own_module() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - MACHINERY
    assert {name.replace("-", "_") for name in POLICIES} == modules
    for name, policy in POLICIES.items():
        assert str(policy).startswith(f"<module 'policies.{name.replace('-', '_')}'")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_imports_neither_another_policy_nor_its_callers(name: str) -> None:
    allowed = {"policies.policy", "policies.outlook", "policies.open_cards"}
    imports = list_imports(FOLDER / f"{name.replace('-', '_')}.py")
    assert {each for each in imports if not each.startswith("policies.mix.")} <= allowed


def test_the_configuration_takes_every_registered_policy_and_no_other() -> None:
    tuning = PolicyTuning.model_validate({"default": "spread", "allowed": list(POLICIES)})
    assert [tuning.choose_policy(name).name for name in POLICIES] == list(POLICIES)
    *others, last = map(repr, POLICIES)
    with pytest.raises(ValidationError, match=f"Input should be {', '.join(others)} or {last} "):
        PolicyTuning(default="best")
