"""Every break is noticed by the test that its row names.

The rows themselves are checked in `make test`. Each run is a process of its own: `make mutations`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
import yaml

from tests.mutations.breaks import Mutation, join_mutations
from tests.mutations.in_agent import AGENT
from tests.mutations.in_autoscaling import PROTECTIONS
from tests.mutations.in_binding import BINDINGS
from tests.mutations.in_cards import CARDS
from tests.mutations.in_cdi import CDI
from tests.mutations.in_hosts import HOSTS
from tests.mutations.in_http import DOORS
from tests.mutations.in_kmod import KMOD
from tests.mutations.in_ledger import LEDGERS
from tests.mutations.in_preemption import PREEMPTIONS
from tests.mutations.in_preload import PRELOAD
from tests.mutations.in_requeue import WAITING
from tests.mutations.in_verbs import VERBS
from tests.mutations.product_copy import ROOT, ProductCopy, open_product_copy

ROWS_BY_AREA: Mapping[str, Mapping[str, Mutation]] = {
    "cards": CARDS,
    "ledger": LEDGERS,
    "binding": BINDINGS,
    "verbs": VERBS,
    "preemption": PREEMPTIONS,
    "autoscaling": PROTECTIONS,
    "requeue": WAITING,
    "http": DOORS,
    "agent": AGENT,
    "cdi": CDI,
    "preload": PRELOAD,
    "kmod": KMOD,
    "hosts": HOSTS,
}
BREAKS = join_mutations(*ROWS_BY_AREA.values())


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProductCopy]:
    with open_product_copy(tmp_path_factory.mktemp("copy")) as opened:
        yield opened


def test_every_mutated_line_exists_and_its_mutation_parses() -> None:
    """It occurs once, and the broken file is still valid Python: any other file would fail every test."""
    assert [f"{name}: {problem}" for name, row in BREAKS.items() if (problem := _find_problem(row))] == []


def test_every_test_of_a_mutation_exists() -> None:
    """Names of parametrized cases are known only at run time: a missing one makes the run of its area fail."""
    functions = {file: _function_names(file) for file in {row.test_file for row in BREAKS.values()}}
    named = {name: row.test.partition("::")[2].partition("[")[0] for name, row in BREAKS.items()}
    assert [name for name, row in BREAKS.items() if named[name] not in functions[row.test_file]] == []


def _find_problem(row: Mutation) -> str:
    text = (ROOT / row.file).read_text()
    if (count := [line.strip() for line in text.splitlines()].count(row.old)) != 1:
        return f"the line is there {count} times"
    broken = row.mutate(text)
    if row.file.endswith(".py"):
        tree = ast.parse(broken)
        compile(tree, row.file, "exec")
        is_same = ast.dump(tree) == _dump_unbroken(text)
    else:
        is_same = list(yaml.safe_load_all(broken)) == list(yaml.safe_load_all(text))
    return "it means the same as before" if is_same else ""


@cache
def _dump_unbroken(text: str) -> str:
    """Many rows break the same file."""
    return ast.dump(ast.parse(text))


def _function_names(file: str) -> set[str]:
    if not (ROOT / file).exists():
        return set()
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.mutation
@pytest.mark.parametrize("area", ROWS_BY_AREA)
def test_all_named_tests_pass_without_a_mutation(area: str, copy: ProductCopy) -> None:
    outcome = copy.run_tests(sorted({row.test for row in ROWS_BY_AREA[area].values()}))
    assert outcome.code == 0, outcome.output
    assert re.search(r"^\d+ passed in ", outcome.output, re.MULTILINE), outcome.output


@pytest.mark.mutation
@pytest.mark.parametrize("row", BREAKS.values(), ids=BREAKS)
def test_a_mutation_is_noticed_by_its_test(row: Mutation, copy: ProductCopy) -> None:
    """By a failed assertion, or by an unexpected error of ours: a break that makes Python itself fail shows nothing."""
    with copy.broken_by(row):
        outcome = copy.run_tests([row.test])
    said = outcome.output
    assert outcome.code == 1, said
    assert re.search(r"^1 failed(, \d+ passed)? in ", said, re.MULTILINE), said
    assert re.search(
        r"^E +(AssertionError|assert |Failed: DID NOT RAISE|vrampack\.kube\.errors\.)", said, re.MULTILINE
    ), said
