"""The Dockerfile and its lists, read without building anything."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from images import environment_trim
from vrampack.agent.limits.preload.files import SHIPPED_LIBRARY

REPOSITORY = Path(__file__).parents[2]
SITE = Path(yaml.__file__).parents[1]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [package.rstrip("*") for package in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
FILES = ["pyproject.toml", "LICENSE", "requirements/runtime.txt", "requirements/dev.txt"]
TOOLS = ["images/base_trim.py", "images/elf_symbols.py", "images/environment_trim.py", "images/target"]
LIBRARY_SOURCES = ["shim/core", "shim/preload"]


def stages() -> list[list[tuple[str, str]]]:
    """Instructions and their text, stage by stage; what precedes the first `FROM` comes first."""
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    made: list[list[tuple[str, str]]] = [[]]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            made.append([])
        made[-1].append((instruction, rest))
    return made


def test_every_stage_starts_from_a_configurable_base() -> None:
    (base, compiler, builder), *built = stages()
    assert base[0] == "ARG"
    assert re.fullmatch(r"BASE=docker\.io/library/python:3\.\d+-slim-\w+", base[1])
    assert compiler == ("ARG", "COMPILER_BASE=${BASE}")
    assert builder == ("ARG", "BUILDER_BASE=${BASE}")
    assert [stage[0] for stage in built] == [
        ("FROM", "--platform=${BUILDPLATFORM} ${COMPILER_BASE} AS library"),
        ("FROM", "--platform=${BUILDPLATFORM} ${BUILDER_BASE} AS builder"),
        ("FROM", "--platform=${TARGETPLATFORM} ${BASE}"),
    ]


def test_the_image_runs_as_an_unprivileged_user() -> None:
    """By number: a cluster that demands `runAsNonRoot` cannot look names up."""
    final = stages()[-1]
    assert [text for name, text in final if name == "USER"] == ["65532:65532"]
    after = [name for name, _ in final[final.index(("USER", "65532:65532")) + 1 :]]
    assert after == ["ENTRYPOINT", "CMD"]
    assert ("ENTRYPOINT", '["vrampack"]') in final


def test_nothing_is_fetched_but_pinned_packages_and_the_compiler() -> None:
    instructions = [each for stage in stages() for each in stage]
    assert "ADD" not in {name for name, _ in instructions}
    compiling, *others = ["\n".join(text for name, text in stage if name == "RUN") for stage in stages()[1:]]
    assert not re.search(r"\b(curl|wget|git|pip)\b|https?://", compiling)
    assert re.findall(r"apt-get install ([^;&]*);", compiling) == [
        "--yes --no-install-recommends $(images/target packages) make"
    ]
    runs = "\n".join(others)
    assert not re.search(r"\b(curl|wget|git|apt-get)\b|https?://", runs)
    installs = re.findall(r"pip\S*(?: --python \S+)? install ([^&]*)", runs)
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_the_final_stage_takes_one_folder() -> None:
    """A second one would be a way for pip, caches or sources to get in."""
    copies = [text for name, text in stages()[-1] if name == "COPY"]
    assert copies == ["--from=builder /opt/vrampack /opt/vrampack"]


def copied_sources(stage: list[tuple[str, str]]) -> list[str]:
    """What a stage takes from the repository."""
    copies = [text for name, text in stage if name == "COPY" and not text.startswith("--from=")]
    return [source for text in copies for source in text.split()[:-1]]


def test_the_builder_copies_the_sources_of_the_program() -> None:
    assert sorted(copied_sources(stages()[2])) == sorted([*PACKAGES, *FILES, *TOOLS])
    assert list(environment_trim.OWN_PACKAGES) == PACKAGES


def test_the_library_is_compiled_from_its_sources_alone() -> None:
    """What is in a build folder may be of another tree: a clean clone has none."""
    assert copied_sources(stages()[1]) == ["images/target", *LIBRARY_SOURCES]
    made = 'make -C shim/preload preload OUT=/out CC="$(/images/target compiler)"'
    assert [text for name, text in stages()[1] if name == "RUN"][-1] == made


def test_the_build_context_contains_nothing_else() -> None:
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    everything, *rest = [line for line in lines if line and not line.startswith("#")]
    assert everything == "*"
    given = [*PACKAGES, *FILES, *TOOLS, *LIBRARY_SOURCES]
    assert sorted(line[1:] for line in rest if line.startswith("!")) == sorted(given)
    assert [line for line in rest if not line.startswith("!")] == ["**/__pycache__", "**/*.pyc"]


def test_the_library_is_copied_to_where_the_agent_looks_for_it() -> None:
    (copied,) = [text for name, text in stages()[2] if name == "COPY" and text.startswith("--from=library")]
    assert copied == f"--from=library /out/libvrampack.so {SHIPPED_LIBRARY}"


@pytest.mark.parametrize("pattern", environment_trim.REMOVED_PATTERNS)
def test_removed_files_exist_before_removal(pattern: str) -> None:
    assert environment_trim.find_removed_paths(SITE, pattern)


def test_removed_modules_are_never_loaded() -> None:
    """Otherwise the image would not build: this test finds it earlier, in the change that breaks it."""
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, cwd=REPOSITORY)
    loaded = {Path(line) for line in done.stdout.splitlines()}
    assert SITE / "kubernetes/aio/client/api_client.py" in loaded
    removed = [
        path
        for pattern in environment_trim.REMOVED_PATTERNS
        for path in environment_trim.find_removed_paths(SITE, pattern)
    ]
    below = {each for path in removed if path.is_dir() for each in path.rglob("*.py")}
    assert loaded & (below | set(removed)) == set()


LOADED = """
import sys
from images.environment_trim import OWN_PACKAGES, import_modules
for package in OWN_PACKAGES:
    import_modules(package)
print(*(module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)), sep="\\n")
"""
