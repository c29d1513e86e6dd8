"""The socket of a listener."""

from __future__ import annotations

import socket


def open_listener(host: str, port: int, *, backlog: int = 2048) -> socket.socket:
    """A listening socket, so that a port in use is an error before anything starts. Raises `OSError`."""
    is_ipv6 = ":" in host
    listener = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        address = f"[{host}]:{port}" if is_ipv6 else f"{host}:{port}"
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return listener
