"""The files that `make release` has made: `VERSION` names them, or the version of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from images.archive import LIMITS_MB, read_archive
from release.__main__ import BUNDLE, TRIAL_KEY
from release.artifacts import IMAGE_NAMES
from release.checksums import CHECKSUMS
from release.programs import build_program
from release.sbom import scan_image
from vrampack.cli.version import VERSION

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build/release" / os.environ.get("VERSION", VERSION)
OFFLINE = ("unshare", "--net")

pytestmark = [pytest.mark.release, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def images() -> list[Path]:
    assert FOLDER.is_dir(), f"`make release VERSION={VERSION}` makes it"
    found = sorted(FOLDER.glob("*-image-*.tar"))
    assert found
    return found


@pytest.fixture(scope="module")
def cosign() -> Path:
    return build_program("cosign")


@pytest.fixture(scope="module")
def syft() -> Path:
    return build_program("syft")


def verify(cosign: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Verify as a reader would, by the command of docs/releases.md, on a machine without a network."""
    (key,) = [path for path in (FOLDER / f"{TRIAL_KEY}.pub", FOLDER / "cosign.pub") if path.exists()]
    offline = ("--insecure-ignore-tlog", "--offline")
    command: list[str | Path] = [
        *OFFLINE,
        cosign,
        "verify-blob",
        "--key",
        key,
        "--bundle",
        folder / BUNDLE,
        *offline,
        folder / CHECKSUMS,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_checksums_cover_every_file(images: list[Path]) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", CHECKSUMS], cwd=FOLDER, capture_output=True, text=True, check=True
    )
    covered = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    signature = {CHECKSUMS, BUNDLE, f"{TRIAL_KEY}.pub", "cosign.pub"}
    assert {path.name for path in FOLDER.iterdir()} - signature == covered
    assert {path.name for path in images} <= covered


def test_the_signature_is_good_without_a_network(cosign: Path) -> None:
    done = verify(cosign, FOLDER)
    assert done.returncode == 0, done.stderr
    assert "Verified OK" in done.stderr


def test_a_changed_checksum_is_noticed(cosign: Path, tmp_path: Path) -> None:
    for name in (CHECKSUMS, BUNDLE):
        shutil.copy(FOLDER / name, tmp_path / name)
    text = (tmp_path / CHECKSUMS).read_text()
    (tmp_path / CHECKSUMS).write_text(text.replace(text[0], "0" if text[0] != "0" else "1", 1))
    assert verify(cosign, tmp_path).returncode != 0


def test_every_package_that_syft_finds_is_in_the_list(images: list[Path], syft: Path) -> None:
    for image in images:
        listed = json.loads((FOLDER / f"{image.stem}.cdx.json").read_text())["components"]
        packages = {(each["name"], each.get("version")) for each in listed if each["type"] == "library"}
        found = json.loads(scan_image(syft, image, "syft-json", name="x", version="x"))["artifacts"]
        assert {(each["name"], each["version"]) for each in found} == packages
        kinds = {each["type"] for each in found}
        assert kinds == {"deb", "python"}


def test_every_package_in_the_image_is_in_the_list(images: list[Path], tmp_path: Path) -> None:
    """Without syft: dpkg's own list, and the folders in which Python keeps what is installed."""
    for image in images:
        root = tmp_path / image.stem
        root.mkdir()
        read_archive(image).unpack_layers(root)
        status = (root / "var/lib/dpkg/status").read_text()
        here = {line.removeprefix("Package: ") for line in status.splitlines() if line.startswith("Package: ")}
        here |= {
            path.name.split("-")[0].lower().replace("_", "-")
            for path in root.glob("opt/vrampack/lib/python3*/*/*.dist-info")
        }
        listed = json.loads((FOLDER / f"{image.stem}.cdx.json").read_text())["components"]
        names = {each["name"].lower().replace("_", "-") for each in listed if each["type"] == "library"}
        assert len(here) > 60
        assert here == names


def test_the_images_are_within_their_size_budget(images: list[Path]) -> None:
    for image in images:
        (parts,) = [parts for parts, name in IMAGE_NAMES.items() if image.name.startswith(f"{name}-{VERSION}-image")]
        archive = read_archive(image)
        assert archive.architecture == image.stem.rpartition("-")[2]
        assert sum(layer.size_bytes for layer in archive.layers) <= LIMITS_MB[parts] * 1e6


def test_the_tarball_contains_the_files_beside_it() -> None:
    (whole,) = FOLDER.glob("*-airgapped.tar")
    with tarfile.open(whole) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    outside = {BUNDLE, f"{TRIAL_KEY}.pub", "cosign.pub", whole.name}
    assert names == {path.name for path in FOLDER.iterdir()} - outside
    assert {path.name for path in FOLDER.glob("*.whl")} <= names


def test_the_plugin_and_the_wheel_are_of_this_version() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "kubectl-inspect-cgpu", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"kubectl inspect cgpu {VERSION}\n"
    (wheel,) = FOLDER.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        assert f"Version: {VERSION}\n" in content.read(f"vrampack-{VERSION}.dist-info/METADATA").decode()
