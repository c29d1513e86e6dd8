"""An image as a file: an OCI archive, read without any container tool.

`python -m images.archive FILE [PARTS]` prints its layers and fails when they are larger together than `LIMITS_MB` allows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

LIMITS_MB = {"all": 60, "extender": 45}
"""What a node may have to fetch, in million bytes, compressed, by the parts of the image; docs/image.md names them."""

WHITEOUT_PREFIX = ".wh."


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """One layer as it travels."""

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """What an image says about itself, and its layers, the base's first."""

    path: Path
    digest: str  # of the manifest: what a registry would name the image by
    architecture: str
    settings: Mapping[str, Any]  # JSON of the image specification, read by key
    layers: tuple[ImageLayer, ...]

    @property
    def own_layer(self) -> ImageLayer:
        """What the Dockerfile adds to its base: `images/build` makes one layer of it."""
        return self.layers[-1]

    def list_paths(self, layer: ImageLayer) -> list[str]:
        """The paths in a layer, without a leading slash; `.wh.NAME` takes NAME of a lower layer away."""
        with (
            tarfile.open(self.path) as archive,
            tarfile.open(fileobj=_open_layer(archive, layer), mode="r:*") as content,
        ):
            return [str(PurePosixPath(name)) for name in content.getnames()]

    def unpack_layers(self, root: Path) -> None:
        """Lay the layers over one another, as a runtime does. Root's business: owners and rights are kept."""
        for layer in self.layers:
            for name in map(PurePosixPath, self.list_paths(layer)):
                if name.name.startswith(WHITEOUT_PREFIX):
                    _delete_tree(root / name.with_name(name.name.removeprefix(WHITEOUT_PREFIX)))
            # tar(1), because what Python's own calls and warns about differs from one 3.11 to the next.
            command = ["tar", "-xz", "--numeric-owner", "-p", f"--exclude={WHITEOUT_PREFIX}*", "-C", str(root)]
            with tarfile.open(self.path) as archive:
                subprocess.run(command, input=_open_layer(archive, layer).read(), check=True)  # noqa: S603 - no shell


def read_archive(path: Path) -> ImageArchive:
    """The one image of an OCI archive."""
    with tarfile.open(path) as archive:

        def load(name: str) -> Any:  # noqa: ANN401 - JSON of the image specification
            return json.loads(archive.extractfile(name).read())  # type: ignore[union-attr]  # None: not a file

        (entry,) = load("index.json")["manifests"]
        manifest = load(_build_blob_path(entry["digest"]))
        image = load(_build_blob_path(manifest["config"]["digest"]))
    layers = tuple(ImageLayer(each["digest"], each["size"]) for each in manifest["layers"])
    return ImageArchive(path, entry["digest"], image["architecture"], image["config"], layers)


def main(path: Path, parts: str = "all") -> int:
    """The exit code: 0 when the image is small enough."""
    limit_mb = LIMITS_MB[parts]
    archive = read_archive(path)
    total = sum(layer.size_bytes for layer in archive.layers)
    for layer in archive.layers:
        origin = "vrampack" if layer is archive.own_layer else "base"
        sys.stdout.write(f"{layer.size_bytes / 1e6:7.1f} MB  {origin:8}  {layer.digest[:19]}\n")
    sys.stdout.write(f"{total / 1e6:7.1f} MB  compressed in total, at most {limit_mb}\n")
    return 0 if total <= limit_mb * 1e6 else 1


def _build_blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _open_layer(archive: tarfile.TarFile, layer: ImageLayer) -> IO[bytes]:
    file = archive.extractfile(_build_blob_path(layer.digest))
    if file is None:
        raise LookupError(f"{layer.digest} is not a file")
    return file


def _delete_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            _delete_tree(each)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
