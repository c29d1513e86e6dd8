"""TLS of a listener, from the files that its settings name: for anybody, or only for clients that an authority signed."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol


class TlsFiles(Protocol):
    """The section `tls` of some settings."""

    @property
    def cert_file(self) -> Path | None:
        """PEM certificate chain of the server."""

    @property
    def key_file(self) -> Path | None:
        """PEM key of it."""

    @property
    def client_ca_file(self) -> Path | None:
        """PEM authorities of which one must have signed a client; None: anybody gets in."""


def build_tls_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 or newer with these files. Raises `OSError` naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(files.cert_file), str(files.key_file))
    except OSError as error:
        raise OSError(f"tls.cert_file {files.cert_file}, tls.key_file {files.key_file}: {error}") from error
    # Go offers h2 where ALPN allows it; this server speaks HTTP/1.1.
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session is not checked again: a client would outlive its authority by two hours.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if files.client_ca_file is not None:
        _require_client_certificate(context, files.client_ca_file)
    return context


def _require_client_certificate(context: ssl.SSLContext, authorities: Path) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(str(authorities))
    except OSError as error:
        raise OSError(f"tls.client_ca_file {authorities}: {error}") from error
