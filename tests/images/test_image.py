"""The image that `make image` has just built, looked into and run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from packaging.requirements import Requirement

from images.archive import WHITEOUT_PREFIX, ImageArchive, read_archive
from images.container import ImageContainer
from tests.images import probe
from vrampack.agent.limits.preload.files import SHIPPED_LIBRARY
from vrampack.cli.version import VERSION

REPOSITORY = Path(__file__).parents[2]
ARCHIVE = REPOSITORY / "build/image/vrampack.tar"
NOBODY = 65532

pytestmark = pytest.mark.image


@pytest.fixture(scope="module")
def archive() -> ImageArchive:
    assert ARCHIVE.exists(), "images/build makes it; `make image` does both"
    return read_archive(ARCHIVE)


@pytest.fixture(scope="module")
def container(archive: ImageArchive, tmp_path_factory: pytest.TempPathFactory) -> ImageContainer:
    return ImageContainer(archive, tmp_path_factory.mktemp("root"))


def ask(container: ImageContainer, *question: str) -> Any:  # noqa: ANN401 - JSON of the probe
    source = Path(probe.__file__).read_text(encoding="utf-8")
    done = container.run("-c", source, *question, entrypoint=["python3"], timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_image_has_its_labels_and_runs_as_an_unprivileged_user(archive: ImageArchive) -> None:
    settings = archive.settings
    assert settings["User"] == f"{NOBODY}:{NOBODY}"
    assert (settings["Entrypoint"], settings["Cmd"]) == (["vrampack"], ["serve"])
    assert settings["Labels"]["org.opencontainers.image.version"] == VERSION


PIP = r"usr/(local/)?(lib/python3[^/]*/(site-packages/[^/]*|ensurepip)|bin/pip[^/]*|share/python-wheels)"
BYTECODE = r"usr/(local/)?lib/python3.*\.pyc"


def test_the_image_adds_one_folder(archive: ImageArchive) -> None:
    """No index address, certificate, cache or mount point of the build. From the base pip is removed, and bytecode is added."""
    names = archive.list_paths(archive.own_layer)
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents} | {"run"}
    outside = [name for name in names if not name.startswith("opt/vrampack/") and name not in folders]
    gone = [name.replace(WHITEOUT_PREFIX, "") for name in outside if WHITEOUT_PREFIX in name]
    come = [name for name in outside if WHITEOUT_PREFIX not in name]
    assert [name for name in gone if not re.fullmatch(PIP, name)] == []
    assert [name for name in come if not re.fullmatch(BYTECODE, name)] == []


def test_the_image_has_exactly_the_pinned_packages(container: ImageContainer) -> None:
    python = ask(container, "python", "pip", "ensurepip", "setuptools", "wheel")
    here = {"python_full_version": python["version"], "python_version": python["version"].rpartition(".")[0]}
    pinned = {"vrampack": VERSION}
    for line in (REPOSITORY / "requirements/runtime.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate(here):
                pinned[requirement.name] = str(requirement.specifier).removeprefix("==")
    assert {name.lower().replace("_", "-"): version for name, version in python["installed"].items()} == {
        name.lower().replace("_", "-"): version for name, version in pinned.items()
    }
    assert python["found"] == []
    assert python["commands"] == []


def test_every_module_in_the_image_has_bytecode(container: ImageContainer) -> None:
    """Missing bytecode would be recompiled at every start, and thrown away: the root is read-only."""
    assert ask(container, "python")["uncompiled"] == []


def test_the_image_has_no_leftovers_of_the_build(container: ImageContainer) -> None:
    left = {"*.whl", "*.a", "*.pyx", "*.deb", "pip.conf"}
    assert [path for pattern in left for path in container.root.rglob(pattern)] == []
    assert list((container.root / "tmp").iterdir()) == []
    assert not (container.root / "root/.cache").exists()


def test_the_image_has_the_library_but_no_compiler(container: ImageContainer) -> None:
    library = container.root / SHIPPED_LIBRARY.relative_to("/")
    assert library.read_bytes().startswith(b"\x7fELF")
    assert b"libvrampack.so" in library.read_bytes()
    compilers = [path for name in ("gcc*", "cc1", "as", "make") for path in container.root.glob(f"usr/**/{name}")]
    assert [path for path in compilers if path.is_file() and os.access(path, os.X_OK)] == []


def test_the_container_runs_as_an_unprivileged_user(container: ImageContainer) -> None:
    assert ask(container, "user") == {
        "ids": [NOBODY] * 6,
        "groups": [],
        "capabilities": [0] * 4,
        "no_new_privileges": 1,
    }


def test_the_container_can_write_only_to_tmp(container: ImageContainer) -> None:
    """And had the root been writable, nothing in it would belong to this user."""
    closed = ["/", "/opt/vrampack", "/opt/vrampack/bin", "/etc", "/var/tmp", "/run", "/dev"]
    assert ask(container, "writes", *closed, "/tmp") == dict.fromkeys(closed, "Read-only file system") | {
        "/tmp": "written"
    }
    assert [path for path in container.root.rglob("*") if path.lstat().st_uid == NOBODY] == []


def test_the_image_prints_its_version(container: ImageContainer) -> None:
    done = container.run("version", timeout_seconds=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"vrampack {VERSION}\n", "")


def test_the_image_serves_and_stops(container: ImageContainer) -> None:
    """Alive at once, not ready while the API server is away, and it stops when told."""
    seen = ask(container, "serve")
    assert (seen["healthz"], seen["readyz"], seen["exit_code"]) == (200, 503, 0), seen["log"]
    assert "Traceback" not in seen["log"]


def test_the_image_without_arguments_runs_serve(container: ImageContainer) -> None:
    """Outside a cluster there is no service account: it says so, and what to do."""
    done = container.run(timeout_seconds=60)
    assert done.returncode == 1
    assert "service account of this pod" in done.stderr


def test_the_demo_runs_in_the_image(container: ImageContainer) -> None:
    """The whole main job, with nothing but loopback and a /tmp of its own."""
    done = container.run("demo", timeout_seconds=100)
    assert done.returncode == 0, done.stderr
