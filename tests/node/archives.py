"""Images of one layer, written without any container tool: a static program needs no more.

The name is in the archive, so that `ctr images import` takes it as it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

IMAGE = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Content:
    """What lies in the root: programs by path, further names of them, and empty folders that anybody may write."""

    programs: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    open_folders: Sequence[str] = ()


def write(archive: Path, content: Content, *, names: Sequence[str], entrypoint: Sequence[str]) -> None:
    """An OCI archive with one image under all these names."""
    layer = _layer(content)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{IMAGE}.manifest.v1+json",
            "config": _descriptor(f"{IMAGE}.config.v1+json", config),
            "layers": [_descriptor(f"{IMAGE}.layer.v1.tar", layer)],
        }
    )
    named = _descriptor(f"{IMAGE}.manifest.v1+json", manifest)
    entries = [{**named, "annotations": {"io.containerd.image.name": name}} for name in names]
    with tarfile.open(archive, "w") as made:
        _add(made, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(made, "index.json", _json({"schemaVersion": 2, "manifests": entries}))
        for blob in (layer, config, manifest):
            _add(made, f"blobs/{_digest(blob).replace(':', '/')}", blob)


def _layer(content: Content) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as layer:
        for folder in content.open_folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            layer.addfile(entry)
        for path, program in content.programs.items():
            _add(layer, path, program.read_bytes(), mode=0o755)
        for path, target in content.links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
    return packed.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
