"""Which tests may import which: what several rooms need is in tests/support, and no fast test loads a slow suite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SUITES = ("alerts", "driver", "e2e", "node", "machine", "shim")
"""Each needs machinery of its own: a control plane, a kubelet, virtual machines, C programs."""
MAY_IMPORT = {
    "alerts": {"alerts"},
    "node": {"node", "alerts"},
    "machine": {"machine"},
    "driver": {"driver", "machine", "shim"},
    "shim": {"shim", "machine"},
    "e2e": {"e2e"},
}
FOR_SUPPORT = {"support", "fakes"}


IMPORT = re.compile(r"^ *(?:from (tests[\w.]*) import (\([^)]*\)|.*)|import (tests[\w.]*))", re.MULTILINE)
"""Read as text: to parse every file takes seconds."""


def imported_modules(file: Path) -> Iterator[tuple[str, ...]]:
    """What a file imports of the tests, in parts: `("support", "polling")`."""
    for package, names, module in IMPORT.findall(file.read_text()):
        found = [f"{package}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names)] if package else [module]
        yield from (tuple(name.split(".")[1:]) for name in found)


def imports_by_room() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for file in sorted(TESTS.rglob("*.py")):
        parts = file.relative_to(TESTS).parts
        for module in imported_modules(file):
            yield parts[0] if len(parts) > 1 else "", f"{'/'.join(parts)} imports {'.'.join(module)}", module


def test_only_a_suite_imports_what_its_machinery_is_made_of() -> None:
    found = [
        text
        for room, text, module in imports_by_room()
        if module[0] in SUITES and module[0] not in MAY_IMPORT.get(room, set())
    ]
    assert found == []


def test_support_knows_no_room() -> None:
    found = [text for room, text, module in imports_by_room() if room == "support" and module[0] not in FOR_SUPPORT]
    assert found == []


def test_no_test_module_is_imported() -> None:
    """It would be collected for its helpers; those belong in a module beside it."""
    found = [text for _, text, module in imports_by_room() if any(part.startswith("test_") for part in module[:-1])]
    assert found == []


def test_the_root_conftest_stays_small() -> None:
    """Every pytest process pays for it."""
    assert set(imported_modules(TESTS / "conftest.py")) == {("support", "control_plane", "binaries")}
