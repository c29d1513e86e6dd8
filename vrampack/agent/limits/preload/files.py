"""The host folder that containers see: the library, the file that names it to the loader, and the agent's socket.

Running programs have the library mapped, so it is never written into: a new one is written beside it and renamed over it.
`/etc/ld.so.preload` of a container is a mount of our file; a container that has it mounted keeps the version that it started with.
"""

from __future__ import annotations

import os
from pathlib import Path

HOST_FOLDER = Path("/var/lib/vrampack/preload")
"""On the node, in the agent's pod and in containers: one path, so that the loader's file can name it. Not below /run, which
is mounted noexec on some nodes."""
LIBRARY = "libvrampack.so"
LOADER_FILE = "ld.so.preload"
SOCKET_NAME = "agent.sock"
CONTAINER_LOADER_FILE = "/etc/ld.so.preload"
SHIPPED_LIBRARY = Path("/opt/vrampack/lib/vrampack") / LIBRARY
"""The path in the image."""


def install_files(shipped: Path, folder: Path) -> None:
    """Install library and loader file, if they differ. Without a shipped library the installed one stays. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if shipped.is_file():
        _write_file(folder / LIBRARY, shipped.read_bytes(), 0o755)
    _write_file(folder / LOADER_FILE, f"{HOST_FOLDER / LIBRARY}\n".encode(), 0o644)


def list_mounts() -> dict[str, str]:
    """The mounts of a container, all read-only: path on the node by path inside."""
    return {str(HOST_FOLDER): str(HOST_FOLDER), CONTAINER_LOADER_FILE: str(HOST_FOLDER / LOADER_FILE)}


def _write_file(path: Path, content: bytes, mode: int) -> None:
    if path.is_file() and path.read_bytes() == content:
        path.chmod(mode)
        return
    making = path.with_name(path.name + ".new")
    making.unlink(missing_ok=True)
    with os.fdopen(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    making.rename(path)
