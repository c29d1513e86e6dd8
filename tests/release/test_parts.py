"""The parts of a release that are made without building anything: archives, checksums, the krew manifest, versions."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from release.archives import list_files, rewrite_tar, write_compressed_tar, write_tar
from release.artifacts import IMAGE_NAMES, REGISTRY, ReleaseBuilder
from release.checksums import compute_sha256, write_checksums
from release.krew import write_krew_manifest
from release.sources import ReleaseError, ReleaseSources, check_versions

REPOSITORY = Path(__file__).parents[2]
WRITTEN_AT = 1_700_000_000


def a_folder(path: Path, *, mode: int, time: int) -> Path:
    (path / "below").mkdir(parents=True)
    for name, bits in {"a": 0o644, "below/program": 0o755}.items():
        (path / name).write_text(name)
        (path / name).chmod(bits & mode)
        os.utime(path / name, (time, time))
    return path


def some_sources(folder: Path, version: str) -> ReleaseSources:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    return ReleaseSources(folder, "abc", WRITTEN_AT)


@pytest.mark.parametrize("write", [write_tar, write_compressed_tar])
def test_an_archive_depends_on_names_and_contents_alone(write: type, tmp_path: Path) -> None:
    made = []
    for name, mode, time in (("one", 0o777, 1), ("another", 0o700, 2_000_000_000)):
        target = tmp_path / f"{name}.tar"
        write(target, list_files(a_folder(tmp_path / name, mode=mode, time=time), "x"), written_at=WRITTEN_AT)
        made.append(target.read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "one.tar") as archive:
        members = {each.name: (each.mode, each.mtime, each.uid, each.uname) for each in archive}
    assert members == {"x/a": (0o644, WRITTEN_AT, 0, ""), "x/below/program": (0o755, WRITTEN_AT, 0, "")}


def test_a_foreign_archive_is_rewritten_without_its_times(tmp_path: Path) -> None:
    for name, time in (("one", 1), ("another", 2_000_000_000)):
        folder = a_folder(tmp_path / name, mode=0o777, time=time)
        with tarfile.open(tmp_path / f"{name}.tar", "w") as archive:
            archive.add(folder, "x")
        rewrite_tar(tmp_path / f"{name}.tar", written_at=WRITTEN_AT)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "another.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        content = archive.extractfile("x/a")
        assert content is not None
        assert content.read() == b"a"


def test_a_compressed_archive_does_not_contain_its_file_name(tmp_path: Path) -> None:
    write_compressed_tar(tmp_path / "named.tgz", {"a": Path(__file__)}, written_at=WRITTEN_AT)
    content = (tmp_path / "named.tgz").read_bytes()
    assert b"named" not in content[:64]
    assert gzip.decompress(content)


def test_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    write_checksums(tmp_path)
    write_checksums(tmp_path)
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout == b"a: OK\nb: OK\n"


def test_the_krew_manifest_matches_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "kubectl-inspect_cgpu-1.2.3.tar.gz"
    packed = {"kubectl-inspect_cgpu": Path(__file__), "LICENSE": REPOSITORY / "LICENSE"}
    write_compressed_tar(archive, packed, written_at=WRITTEN_AT)
    write_krew_manifest(tmp_path / "inspect-cgpu.yaml", archive, "1.2.3")
    spec = yaml.safe_load((tmp_path / "inspect-cgpu.yaml").read_text())["spec"]
    (platform,) = spec["platforms"]
    with tarfile.open(archive) as content:
        assert sorted(each["from"] for each in platform["files"]) == sorted(content.getnames())
    assert platform["bin"] in {each["from"] for each in platform["files"]}
    assert platform["sha256"] == compute_sha256(archive)
    assert platform["uri"].endswith(f"/v1.2.3/{archive.name}")
    assert spec["version"] == "v1.2.3"


def test_a_release_must_have_the_committed_version(tmp_path: Path) -> None:
    sources = some_sources(tmp_path, "0.2.0")
    check_versions(sources, "0.2.0")
    with pytest.raises(ReleaseError, match=r"0.3.0 cannot be made: pyproject.toml says 0.2.0"):
        check_versions(sources, "0.3.0")
    (tmp_path / "charts/vrampack").mkdir(parents=True)
    (tmp_path / "charts/vrampack/Chart.yaml").write_text("version: 0.2.0\nappVersion: 0.1.0\n")
    with pytest.raises(ReleaseError, match=r"its appVersion says 0.1.0"):
        check_versions(sources, "0.2.0")


def test_the_chart_is_packaged_if_it_exists(tmp_path: Path) -> None:
    sources = some_sources(tmp_path, "0.2.0")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "charts/vrampack/templates").mkdir(parents=True)
    (tmp_path / "charts/vrampack/Chart.yaml").touch()
    (tmp_path / "out").mkdir()
    ReleaseBuilder(sources, tmp_path / "out").pack_manifests()
    with tarfile.open(tmp_path / "out/vrampack-chart-0.2.0.tgz") as chart:
        assert chart.getnames() == ["vrampack/Chart.yaml"]


def test_every_image_of_the_manifests_is_listed(tmp_path: Path) -> None:
    project = ReleaseSources(REPOSITORY, "abc", WRITTEN_AT)
    ReleaseBuilder(project, tmp_path).write_image_list(["amd64", "arm64"])
    lines = [line.split("\t") for line in (tmp_path / "images.txt").read_text().splitlines()]
    ours = {name for name, _ in lines if name.startswith(REGISTRY)}
    assert ours == {f"{REGISTRY}/{name}:{project.version}" for name in IMAGE_NAMES.values()}
    assert [name for name, _ in lines if "kube-scheduler:" in name]
    named = set()
    for path in (REPOSITORY / "manifests/rendered").glob("*.yaml"):
        for line in path.read_text().splitlines():
            key, _, image = line.strip().removeprefix("- ").partition(": ")
            if key == "image":
                named.add(image)
    assert named
    assert named <= {name for name, _ in lines}
