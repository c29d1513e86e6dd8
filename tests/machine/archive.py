"""Writes an initramfs: the "newc" archive that a kernel unpacks.

https://docs.kernel.org/driver-api/early-userspace/buffer-format.html
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

Content = bytes | Path
"""The content of a file, or a file on the host to copy. Copies keep their time stamp, which Python compares."""
END = "TRAILER!!!"


def write_archive(into: Path, files: Mapping[str, Content]) -> None:
    """`files` by their path in the machine; parent folders are added. Copies keep their executable bit."""
    with into.open("wb") as archive:
        parents = (str(folder) for path in files for folder in reversed(PurePosixPath(path).parents))
        folders = [folder for folder in dict.fromkeys(parents) if folder != "/"]
        for number, folder in enumerate(folders, start=1):
            archive.write(_entry(number, folder, stat.S_IFDIR | 0o755, b""))
        for number, (path, content) in enumerate(files.items(), start=len(folders) + 1):
            archive.write(_entry(number, path, *_copied(content)))
        archive.write(_entry(0, END, 0, b""))


def _copied(content: Content) -> tuple[int, bytes, int]:
    if isinstance(content, bytes):
        return stat.S_IFREG | 0o644, content, 0
    found = content.stat()
    runs = found.st_mode & stat.S_IXUSR
    return stat.S_IFREG | (0o755 if runs else 0o644), content.read_bytes(), int(found.st_mtime)


def _entry(number: int, path: str, mode: int, content: bytes, age: int = 0) -> bytes:
    name = path.lstrip("/").encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    # inode, mode, user, group, links, time, size, device (2), the node's device (2), length of the name, check sum
    fields = (number, mode, 0, 0, links, age, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 4)
