"""The proxy in a thread ends with everything that is connected to it."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.certificates import CertificateAuthority


def test_a_connection_without_a_handshake_is_closed_with_the_proxy(tmp_path: Path) -> None:
    """As of a program that was killed: left open, it would be found by the garbage collection of a later test."""
    tls = CertificateAuthority(tmp_path / "pki").build_server_tls()
    with socket.socket() as caller:
        with FaultProxyThread(1, tls=tls) as proxy:
            caller.connect(("127.0.0.1", proxy.port))
            for _ in range(2):  # turns of its loop, in which it accepts
                proxy.count("GET", "/")
        caller.settimeout(5)
        assert caller.recv(1) == b""
