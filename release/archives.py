"""Tar files that depend on names and contents alone: sorted, of root, with one time."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

FILE_MODE, PROGRAM_MODE = 0o644, 0o755


def write_tar(target: Path, contents: dict[str, Path], *, written_at: int) -> None:
    """A tar of these files by name inside, read as they are packed: images are large."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        _add_files(archive, contents, written_at)


def write_compressed_tar(target: Path, contents: dict[str, Path], *, written_at: int) -> None:
    """The same, through gzip without a name or a time of its own."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add_files(archive, contents, written_at)
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=written_at) as packed:
        packed.write(plain.getvalue())


def rewrite_tar(path: Path, *, written_at: int) -> None:
    """The same files with these headers, in place: buildah writes the time of the build into an archive of an image."""
    partial = path.with_name(f".{path.name}.partial")
    with tarfile.open(path) as old, tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted((each for each in old if each.isfile()), key=lambda each: each.name):
            new.addfile(_describe_file(member.name, member.size, FILE_MODE, written_at), old.extractfile(member))
    partial.replace(path)


def list_files(folder: Path, prefix: str) -> dict[str, Path]:
    """All files below the folder, by the name below the prefix."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in files}


def _add_files(archive: tarfile.TarFile, contents: dict[str, Path], written_at: int) -> None:
    for name, path in sorted(contents.items()):
        mode = PROGRAM_MODE if path.stat().st_mode & 0o100 else FILE_MODE
        with path.open("rb") as file:
            archive.addfile(_describe_file(name, path.stat().st_size, mode, written_at), file)


def _describe_file(name: str, size: int, mode: int, written_at: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, mode, written_at
    return member
