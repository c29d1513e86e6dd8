"""Cuts symbols and debug information off compiled modules: half of their bytes, and nothing that a process maps.

Wheels come with them. A linker puts them behind everything that is loaded, so this keeps a file up to the end of its
last segment and takes the table of sections out of the header, which only tools read. Plain Python instead of
binutils, because a slim base has neither that nor, always, a way to install it.
"""

from __future__ import annotations

import struct
from pathlib import Path

ELF_MAGIC = b"\x7fELF\x02\x01"
"""ELF, 64 bits, little-endian: every machine we build for."""


def strip_symbols(path: Path) -> int:
    """Shorten the file if that is possible; returns the bytes it lost."""
    content = path.read_bytes()
    if not content.startswith(ELF_MAGIC):
        return 0
    kept = bytearray(content[: _find_loaded_end(content)])
    struct.pack_into("<Q", kept, 40, 0)  # e_shoff: where the table of sections starts
    struct.pack_into("<HHH", kept, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    path.write_bytes(kept)
    return len(content) - len(kept)


def _find_loaded_end(content: bytes) -> int:
    """Behind the last byte of the header, of the segment table and of every segment."""
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    ends: list[int] = [table + size * count]
    for number in range(count):
        offset, _, _, length = struct.unpack_from("<QQQQ", content, table + size * number + 8)
        ends.append(offset + length)
    return max(ends)
