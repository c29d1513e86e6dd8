"""The wheel beside another distribution that brings packages named as ours once were: `cli` and `agent`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from vrampack.cli.version import VERSION

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "vrampack", "extender", "policies")
PINNED_PACKAGES = Path(yaml.__file__).parents[1]
OUR_PACKAGES = {"vrampack", "extender", "policies", f"vrampack-{VERSION}.dist-info"}
FOREIGN_PACKAGES = ("cli", "agent")


def run(*command: str | Path, **environment: str) -> str:
    """What the command prints; it must succeed."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves folders where it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "sources").mkdir()
    for name in SOURCES:
        source, target = REPOSITORY / name, folder / "sources" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir")
    run(sys.executable, "-m", "pip", "wheel", *options, folder, folder / "sources")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def foreign_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("foreign") / "foreign-1-py3-none-any.whl"
    facts = "foreign-1.dist-info"
    files = {
        **{f"{name}/__init__.py": f"WHOSE = 'the other {name}'\n" for name in FOREIGN_PACKAGES},
        f"{facts}/METADATA": "Metadata-Version: 2.1\nName: foreign\nVersion: 1\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{facts}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{facts}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


@dataclass(frozen=True)
class Site:
    """A virtual environment, and a folder from which its programs are started."""

    environment: Path
    started_in: Path

    def pip(self, *arguments: str | Path) -> str:
        python = self.environment / "bin/python"
        return run(sys.executable, "-m", "pip", "--python", python, *arguments, PYTHONPATH="", PIP_NO_COMPILE="1")

    def run(self, *command: str) -> str:
        """A program of the environment, found on PATH as shells and kubectl do; the pinned packages are there."""
        path = f"{self.environment / 'bin'}:{os.environ['PATH']}"
        script = 'cd "$0" && exec "$@"'
        return run("sh", "-c", script, self.started_in, *command, PATH=path, PYTHONPATH=str(PINNED_PACKAGES))

    def list_packages(self) -> set[str]:
        (site,) = self.environment.glob("lib/python3*/site-packages")
        return {path.name for path in site.iterdir()}


@pytest.fixture(scope="module")
def site(wheel: Path, foreign_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Both distributions, installed without an index, a kubectl, and packages of the same names in the folder."""
    folder = tmp_path_factory.mktemp("site")
    made = Site(folder / "environment", folder / "somebody's project")
    run(sys.executable, "-m", "venv", "--without-pip", made.environment)
    for name in (*FOREIGN_PACKAGES, "extender"):
        (made.started_in / name).mkdir(parents=True)
        (made.started_in / name / "__init__.py").write_text("raise RuntimeError('a package of the folder')\n")
    kubectl = made.environment / "bin/kubectl"
    kubectl.write_text('#!/bin/sh\necho \'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}\'\n')
    kubectl.chmod(0o755)
    for path in (foreign_wheel, wheel):
        made.pip("install", "--quiet", "--no-index", "--no-deps", path)
    return made


def test_the_wheel_installs_three_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}
    assert names == OUR_PACKAGES


def test_no_dependency_names_an_extra_that_is_not_there(wheel: Path) -> None:
    """Pip would warn of it at every install."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"vrampack-{VERSION}.dist-info/METADATA"))
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    assert len(asked) > 5
    unknown = {
        requirement.name: extras
        for requirement in asked
        if (extras := requirement.extras - set(_list_extras(requirement.name)))
    }
    assert unknown == {}


def _list_extras(name: str) -> list[str]:
    return importlib.metadata.metadata(name).get_all("Provides-Extra") or []


def test_the_demo_runs_beside_foreign_packages_of_the_same_names(site: Site) -> None:
    document = json.loads(site.run("vrampack", "demo", "--json"))
    assert [step["step"] for step in document["steps"]] == ["empty", "shared", "full", "freed"]


def test_kubectl_finds_the_plugin(site: Site) -> None:
    """It runs the program `kubectl-inspect-cgpu` from PATH, which calls kubectl."""
    assert site.run("kubectl-inspect-cgpu", "--version") == f"kubectl inspect cgpu {VERSION}\n"
    assert site.run("kubectl-inspect-cgpu") == "No node of this cluster has GPU memory to share.\n"


def test_uninstalling_leaves_foreign_packages_intact(site: Site, tmp_path: Path) -> None:
    """From a copy: others need what is installed."""
    copy = replace(site, environment=shutil.copytree(site.environment, tmp_path / "environment", symlinks=True))
    assert {*OUR_PACKAGES, *FOREIGN_PACKAGES} <= copy.list_packages()
    copy.pip("uninstall", "--quiet", "--yes", "vrampack")
    assert copy.list_packages() & OUR_PACKAGES == set()
    assert list((copy.environment / "bin").glob("*cgpu")) == []
    said = run(copy.environment / "bin/python", "-I", "-c", "import cli, agent; print(cli.WHOSE, agent.WHOSE)")
    assert said == "the other cli the other agent\n"
