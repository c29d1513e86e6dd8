"""Reading an OCI archive: sizes, and layers laid over one another."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from images.archive import LIMITS_MB, main, read_archive

Files = Mapping[str, bytes]


def a_tar(files: Files) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def an_archive(path: Path, *layers: Files, claimed_bytes: int | None = None) -> Path:
    """An image of these layers; the manifest may claim another size for the last."""
    blobs: dict[str, bytes] = {}

    def put(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    entries = [put(a_tar(files)) for files in layers]
    if claimed_bytes is not None:
        entries[-1]["size"] = claimed_bytes
    config = put(json.dumps({"architecture": "arm64", "config": {"User": "1:1"}}).encode())
    manifest = put(json.dumps({"config": config, "layers": entries}).encode())
    path.write_bytes(a_tar(blobs | {"index.json": json.dumps({"manifests": [manifest]}).encode()}))
    return path


def test_a_later_layer_replaces_and_removes_files(tmp_path: Path) -> None:
    base = {"etc/kept": b"1", "etc/changed": b"1", "lib/gone/a": b"1", "lib/gone/b": b"1", "lib/file": b"1"}
    ours = {"etc/changed": b"2", "lib/.wh.gone": b"", "lib/.wh.file": b"", "lib/new": b"2"}
    archive = read_archive(an_archive(tmp_path / "image.tar", base, ours))
    root = tmp_path / "root"
    root.mkdir()
    archive.unpack_layers(root)
    files = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
    assert files == {"etc/kept": "1", "etc/changed": "2", "lib/new": "2"}
    assert (archive.architecture, archive.settings) == ("arm64", {"User": "1:1"})
    assert archive.list_paths(archive.own_layer) == list(ours)


@pytest.mark.parametrize("parts", LIMITS_MB)
@pytest.mark.parametrize(("extra", "want"), [(0, 0), (1, 1)])
def test_an_image_over_the_limit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: int, want: int, parts: str
) -> None:
    path = an_archive(tmp_path / "image.tar", {"a": b""}, {"b": b""})
    base = read_archive(path).layers[0].size_bytes
    path = an_archive(path, {"a": b""}, {"b": b""}, claimed_bytes=LIMITS_MB[parts] * 1_000_000 - base + extra)
    assert main(path, parts) == want
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["base", "vrampack", "compressed"]
    assert f"{LIMITS_MB[parts]:.1f} MB" in lines[-1]
