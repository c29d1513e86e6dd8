"""What a newcomer reads and types first: the pages name what exists, and hooks and CI have no logic of their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))


def dry_run(*arguments: str) -> str:
    """What make would run for the tests if everything were set up."""
    command = ["make", "--no-print-directory", "--dry-run", "--assume-old=setup", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if "pytest" in line)


@pytest.mark.parametrize("page", PAGES)
def test_every_target_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", read(page), re.MULTILINE))
    assert named - targets() == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = read(page)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    paths = re.findall(r"`((?:tests|extender|policies|vrampack|shim|manifests)/[\w./-]+)`", text)
    assert [path for path in (*links, *paths) if not (REPOSITORY / path).exists()] == []


def test_the_map_of_tests_names_every_suite_that_ci_runs() -> None:
    page = read("docs/testing.md")
    named = set(re.findall(r"`(?:make )?([a-z0-9-]+)`", page))
    suites = targets() & {*re.findall(r'"([\w.-]+)"', read(".ci/suites.py"))}
    assert len(suites) >= 12
    assert suites - named == set()
    assert set(re.findall(r"`make ([a-z0-9-]+)", page)) - targets() == set()


def test_the_readme_builds_the_image_before_applying_it() -> None:
    """It names no image that is not published yet, and needs no registry."""
    text = read("README.md")
    assert 0 < text.index("make image") < text.index("kubectl apply")
    assert "newName: localhost/vrampack," in text[: text.index("kubectl apply")]


def test_the_readme_applies_the_manuals_file_with_a_locally_built_image() -> None:
    short = yaml.safe_load(read("README.md").partition("kustomization.yaml <<EOF\n")[2].partition("EOF")[0])
    manual = yaml.safe_load(
        read("docs/install.md").partition("## The file\n")[2].split("```")[1].removeprefix("yaml\n")
    )
    assert short["images"][0].pop("newName") == "localhost/vrampack"  # the name in the archive of `make image`
    assert manual["images"][0].pop("newName").startswith("registry.example.com/")
    same = ("resources", "components")
    assert [manual[key] for key in same] == [short[key] for key in same]
    assert manual["images"][:1] == short["images"]


def test_the_readme_has_picture_and_commands_on_its_first_screen() -> None:
    first = "\n".join(read("README.md").splitlines()[:45])
    assert [text for text in ("+----", "make demo", "make test", "## Install") if text not in first] == []


def test_arguments_reach_pytest() -> None:
    assert dry_run("test").endswith(" tests")
    assert dry_run("test", "ARGS=tests/cards -k fit").endswith(" tests/cards -k fit")


def test_hooks_call_targets_and_fetch_nothing() -> None:
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make format", "make check"]


def test_ci_has_no_logic_of_its_own() -> None:
    (job,) = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"].values()
    checkout, step = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    assert step == {"run": ".ci/run"}
