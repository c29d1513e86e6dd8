"""A policy that is one file and one row in a copy of the product: the command line, the schema and the tests of policies take it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("vrampack", "extender", "policies", "tests", "pyproject.toml")
MODULE = '''
"""The first cards, on the node with the fewest units in use."""

from policies.policy import PolicyTraits, Rating, ScoreTerm

TRAITS = PolicyTraits()


def rate(views, request, outlook):
    for view in views:
        yield Rating(-float(view.shape.used_units), view.fitting[: request.count])


def list_terms(view, chosen, request, outlook):
    return (ScoreTerm("units in use on the node", -float(view.shape.used_units)),)
'''
ROW = '    "least-used": least_used,\n'
TESTS = ("tests/policies/test_registry.py", "tests/policies/test_policies.py")


def run_in(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=copy,
        env=environment | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_policy_is_added_by_one_file_and_one_row(tmp_path: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("e2e", "node"))
        else:
            shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "policies" / "least_used.py").write_text(MODULE.lstrip())
    registry = tmp_path / "policies" / "registry.py"
    registry.write_text(
        registry.read_text()
        .replace("import binpack, fragmentation,", "import binpack, fragmentation, least_used,")
        .replace('    "tessellate": tessellate,\n', '    "tessellate": tessellate,\n' + ROW)
    )
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: vrampack.dev/v1\nkind: PlacementPolicy\npolicy: {default: least-used}\n"
    )

    shown = run_in(tmp_path, "vrampack.cli", "policy", "show", "--policy", "policy.yaml")
    assert "default: least-used" in shown.stdout, shown.stderr
    schema = json.loads(run_in(tmp_path, "vrampack.cli", "config", "schema", "policy").stdout)
    assert "least-used" in json.dumps(schema)
    tests = run_in(tmp_path, "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS)
    assert tests.returncode == 0, tests.stdout[-3000:]
