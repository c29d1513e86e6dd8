"""The archive: files within a limit of bytes, and a manifest of what was collected, what was not, and why."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from vrampack.cli.support_bundle.redaction import redact_text
from vrampack.cli.version import VERSION

FOLDER = "vrampack-support"
MANIFEST = "manifest.json"
MAX_BUNDLE_BYTES = 64 << 20
"""Before compression: 50,000 pods of a snapshot are about 25 MiB."""
MAX_PROBLEM_LENGTH = 500
OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class BundledFile:
    """One file of the archive."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PartContent:
    """The files of one part, and notes about what was left out or could not be read."""

    files: tuple[BundledFile, ...] = ()
    notes: tuple[str, ...] = ()


class PartReport(msgspec.Struct, frozen=True, rename="camel"):
    """One part in the manifest."""

    name: str
    files: dict[str, int]
    """The size in bytes of each file."""
    problem: str = ""
    """Why the part is missing; empty if it is not."""
    notes: tuple[str, ...] = ()


class BundleManifest(msgspec.Struct, frozen=True, rename="camel"):
    """The first file of the archive."""

    created: str
    vrampack: str
    parts: tuple[PartReport, ...]
    never_inside: str = (
        "values of environment variables, arguments, Secrets, image pull secrets, volumes, annotations and labels that are "
        "not ours, and messages of programs that are not ours"
    )


class SupportBundle:
    """The files that were collected, in memory."""

    def __init__(self, created: datetime, max_bytes: int = MAX_BUNDLE_BYTES) -> None:
        self._created = created
        self._free_bytes = max_bytes
        self._files: list[BundledFile] = []
        self.reports: list[PartReport] = []

    @property
    def file_count(self) -> int:
        return len(self._files)

    def add_part(self, name: str, content: PartContent) -> None:
        """Add a part. Files that no longer fit are left out, which the manifest says."""
        kept, notes = dict[str, int](), [redact_text(note) for note in content.notes]
        for file in content.files:
            if len(file.content) > self._free_bytes:
                notes.append(
                    f"{file.name} is left out: with its {len(file.content)} bytes the bundle would be too large"
                )
                continue
            self._free_bytes -= len(file.content)
            self._files.append(file)
            kept[file.name] = len(file.content)
        self.reports.append(PartReport(name, kept, notes=tuple(notes)))

    def add_failed_part(self, name: str, problem: str) -> None:
        """Record that nothing of a part was read, and why."""
        self.reports.append(PartReport(name, {}, redact_text(problem)[:MAX_PROBLEM_LENGTH]))

    def write_archive(self, path: Path) -> None:
        """Write the archive atomically, readable only by its owner. Raises `OSError`."""
        manifest = BundleManifest(self._created.isoformat(timespec="seconds"), VERSION, tuple(self.reports))
        partial = path.with_name(f".{path.name}.partial")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
            with os.fdopen(descriptor, "wb") as target, tarfile.open(fileobj=target, mode="w:gz") as archive:
                for file in (encode_json_file(MANIFEST, manifest), *self._files):
                    self._add_file(archive, file)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _add_file(self, archive: tarfile.TarFile, file: BundledFile) -> None:
        entry = tarfile.TarInfo(f"{FOLDER}/{file.name}")
        entry.size, entry.mode, entry.mtime = len(file.content), OWNER_ONLY, int(self._created.timestamp())
        archive.addfile(entry, io.BytesIO(file.content))


def encode_json_file(name: str, value: object) -> BundledFile:
    """A file of indented JSON."""
    return BundledFile(name, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def encode_text_file(name: str, text: str, max_bytes: int) -> BundledFile:
    """A file of redacted text, cut to its last whole lines if it has more than `max_bytes`."""
    raw = redact_text(text).encode()
    return BundledFile(name, raw if len(raw) <= max_bytes else raw[-max_bytes:].partition(b"\n")[2])


def encode_json_lines(name: str, values: Iterable[object]) -> BundledFile:
    """One object a line, so that a long list can be searched and compared."""
    return BundledFile(name, b"".join(msgspec.json.encode(each) + b"\n" for each in values))
