"""A gRPC server on a unix socket whose file outlives it, as the socket of a killed process does.

grpc removes the path that it was told to listen on when the server goes away. So it listens under a name of its own,
and the socket's real name is a hard link to that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc

PATH_BYTES = 107
"""What fits into a unix socket address with its closing zero."""


async def serve(path: Path, hidden: Path, add: Callable[[grpc.aio.Server], None]) -> grpc.aio.Server:
    """Serve on `path`; an existing file is replaced by a new inode."""
    if max(len(str(each)) for each in (path, hidden)) > PATH_BYTES:
        raise ValueError(f"{hidden} is too long for a unix socket: use a shorter folder")
    server = grpc.aio.server()
    add(server)
    server.add_insecure_port(f"unix:{hidden}")
    await server.start()
    _replace(path, hidden)
    return server


def _replace(path: Path, hidden: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(hidden)
