"""`.ci/run` on a small tree: it runs what is not remembered to have passed, with the files that `.ci/inputs` names and no others."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.polling import wait_until

REPOSITORY = Path(__file__).parents[2]
CI = REPOSITORY / ".ci"
SUITES = ("e2e", "image", "e2e-node", "shim-test", "driver-test")
MAKEFILE = """\
REPORT = $(patsubst --junitxml=%,%,$(PYTEST_ADDOPTS))
setup check demo first-builds-e2e first-builds-image first-builds-e2e-node first-builds-shim-test first-builds-driver-test:
	@true
test mutations:
	@cp passed.xml $(REPORT)
e2e:
	@.ci/timed $@ sh -c '. ./engine && cp passed.xml $(REPORT)'
shim-test:
	@.ci/timed $@ sh -c '. ./library && cp passed.xml $(REPORT)'
image e2e-node driver-test:
	@.ci/timed $@ cp passed.xml $(REPORT)
"""
FILES = {
    "Makefile": MAKEFILE,
    "passed.xml": '<testsuite tests="1" failures="0" errors="0" skipped="0"><testcase classname="a" name="b" time="2"/></testsuite>',
    "pins": "kubernetes==1.36",
    "engine": "true",
    "library": "true",
    ".gitignore": "/build/\n__pycache__/\n",
    ".ci/need": "#!/bin/sh\n",
    # The real one works for 0.1 s, before and after each suite.
    ".ci/speed.py": "def measure_speed() -> float:\n    return 1.0\n",
    ".ci/inputs": "every-suite:\n    Makefile passed.xml .ci/timed .ci/budgets .ci/*.py\ne2e:\n    engine\n"
    "image:\ne2e-node:\nshim-test:\n    library\ndriver-test:\n    pins\n",
}
GREEN = Path(".ci/green")


def run_ci(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ".ci/run", *options], cwd=tree, env=dict(os.environ), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def green_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In which every suite has just passed."""
    tree = tmp_path_factory.mktemp("tree")
    (tree / ".ci").mkdir()
    for name in ("run", "timed", "budgets", *(path.name for path in CI.glob("*.py"))):
        shutil.copy(CI / name, tree / ".ci")
    for path, text in FILES.items():
        (tree / path).write_text(text)
    (tree / ".ci/need").chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(tree)]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=all"]):
        subprocess.run([*git, *words], check=True)
    done = run_ci(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {*re.findall(r"^(\S+): ran: 1 passed", done.stdout, re.MULTILINE)} == {"test", "mutations", *SUITES}
    assert "     2.0 s  a::b" in done.stdout  # the slowest tests of each
    return tree


@pytest.fixture
def tree(green_tree: Path, tmp_path: Path) -> Path:
    return shutil.copytree(green_tree, tmp_path / "tree", symlinks=True)


def rewrite(tree: Path, file: str | Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, (tree / file).read_text(), flags=re.MULTILINE)
    assert count, (tree / file).read_text()
    (tree / file).write_text(text)


def list_remembered(tree: Path) -> set[str]:
    return {line.split()[0] for line in (tree / GREEN).read_text().splitlines() if not line.startswith("#")}


def test_a_suite_that_passed_for_these_files_is_remembered(tree: Path) -> None:
    """And what is printed names the digest, the date and the commit. The line names no host."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
    ).stdout.strip()
    done = run_ci(tree)
    assert (done.returncode, list_remembered(tree)) == (0, {*SUITES})
    for suite in SUITES:
        said = rf"^{suite}: remembered \([0-9a-f]{{32}}, {dt.datetime.now(dt.UTC).date()}, {commit}\)$"
        assert len(re.findall(said, done.stdout, re.MULTILINE)) == 2, done.stdout  # the plan, and the summary
    assert "test: ran: 1 passed" in done.stdout
    assert os.uname().nodename not in (tree / GREEN).read_text()


def read_plan(tree: Path, *options: str) -> dict[str, str]:
    """Why each suite runs, in their order, without the kinds of this machine."""
    done = run_ci(tree, *options, "--plan")
    assert done.returncode == 0, done.stderr
    reasons = re.findall(r"^(\S+): runs: (.*)$", done.stdout, re.MULTILINE)
    return {suite: re.sub(r"^\S+ instead", "this instead", reason) for suite, reason in reasons}


def test_what_changed_since_a_suite_passed_runs_it(tree: Path) -> None:
    """First what never passed for these files, then what passed long ago or elsewhere."""
    rewrite(tree, GREEN, r"^(e2e \w+) \S+", r"\1 2026-01-31")
    rewrite(tree, GREEN, r"^(image .*) \S+ (\S+ \S+ \S+)$", r"\1 2.4 \2")
    rewrite(tree, GREEN, r"^(e2e-node) \w+", rf"\1 {'0' * 32}")
    rewrite(tree, "library", "true", "true # really")
    rewrite(tree, "pins", "1.36", "1.37")
    assert list(read_plan(tree).items()) == [
        ("e2e-node", "its files changed"),
        ("shim-test", "its files changed"),
        ("driver-test", "its files changed"),
        ("e2e", "it last passed on 2026-01-31"),
        ("image", "this instead of 2.4"),
    ]


def test_a_line_that_cannot_be_true_does_not_count(tree: Path) -> None:
    """The processor counts only where another one is emulated."""
    rewrite(tree, GREEN, r" \S+( \S+)$", r" mmx\1")
    rewrite(tree, GREEN, r"^(e2e \w+) \S+", r"\1 2999-01-31")
    rewrite(tree, GREEN, r"^e2e-node .*", "e2e-node")
    assert read_plan(tree) == {
        "e2e": "it last passed on 2999-01-31",
        "e2e-node": "no green run is remembered",
        "shim-test": "this instead of mmx",
        "driver-test": "this instead of mmx",
    }


def test_all_suites_run_if_asked_for(tree: Path) -> None:
    assert read_plan(tree, "--all") == dict.fromkeys(SUITES, "every suite was asked for")


def test_a_forgotten_input_fails(tree: Path) -> None:
    """`shim-test` begins to read a file that its section of `.ci/inputs` does not name."""
    rewrite(tree, "library", "true", ". ./engine")
    done = run_ci(tree)
    assert done.returncode == 1
    assert "failed: shim-test" in done.stdout
    assert list_remembered(tree) == {*SUITES} - {"shim-test"}


def test_a_red_run_is_not_remembered(tree: Path) -> None:
    rewrite(tree, "engine", "true", "false")
    assert run_ci(tree).returncode == 1
    rewrite(tree, "engine", "false", "true")  # what once passed is run again, too
    assert read_plan(tree) == {"e2e": "no green run is remembered"}


def test_a_suite_that_does_not_fit_ends_the_run(tree: Path) -> None:
    rewrite(tree, GREEN, r"^(e2e-node) \w+ (\S+) \d+", rf"\1 {'0' * 32} \2 99999")
    done = run_ci(tree)
    assert done.returncode == 1
    assert re.search(
        r"^e2e-node was not begun: it takes about \d+ s here, and of 80 min \d+ s are left$", done.stdout, re.MULTILINE
    )
    assert "e2e-node: neither ran nor is remembered" in done.stdout


def test_a_glob_without_files_is_an_error(tree: Path) -> None:
    rewrite(tree, ".ci/inputs", "engine", "engines")
    done = run_ci(tree)
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [".ci/run: .ci/inputs, e2e: error: pathspec 'engines' did not match any file(s) known to git"],
    )


def test_a_program_that_takes_too_long_ends_with_what_it_started() -> None:
    code = """
from pathlib import Path
from programs import OUT_OF_TIME, run_program
command = ["sh", "-c", "sleep 1000 & echo $! > /dev/stderr; wait"]
assert run_program(command, folder=Path("."), environment={"PATH": "/usr/bin:/bin"}, seconds=0.5) == OUT_OF_TIME
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=CI, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not Path(f"/proc/{int(done.stderr)}").exists(), what="the program's child is gone")


def list_inputs(suite: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, CI / "inputs.py", suite], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return {*done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("suite", "mark", "folders"),
    [
        ("e2e", "e2e", ["tests/e2e"]),
        ("image", "image", ["tests/images"]),
        ("e2e-node", "node", ["tests/node"]),
        ("shim-test", "shim", ["tests/shim", "tests/machine"]),
        ("driver-test", "driver", ["tests/driver"]),
    ],
)
def test_no_test_of_a_suite_is_left_out_of_its_inputs(suite: str, mark: str, folders: list[str]) -> None:
    """A forgotten module fails by itself when it is imported; a forgotten test would only not run, nor a conftest.py."""
    others = ("tests/e2e/recipes/", "tests/node/recipes/", "tests/node/release/", "tests/arm64/")
    marked = {
        name
        for path in (REPOSITORY / "tests").rglob("*.py")
        if not (name := str(path.relative_to(REPOSITORY))).startswith(others)
        and (
            re.search(rf"pytest\.mark\.{mark}\b", path.read_text())
            or (path.name.startswith("test_") and any(name.startswith(f"{folder}/") for folder in folders))
        )
    }
    assert marked
    inputs = list_inputs(suite)
    assert marked - inputs == set()
    folders_above = {folder for name in marked for folder in Path(name).parents}
    assert {
        str(folder / "conftest.py") for folder in folders_above if (REPOSITORY / folder / "conftest.py").exists()
    } <= inputs
