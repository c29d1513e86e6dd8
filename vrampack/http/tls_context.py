"""The TLS context of a listener, from the files that its settings name, with or without client certificates."""

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
        """PEM key of that certificate."""

    @property
    def client_ca_file(self) -> Path | None:
        """PEM authorities of which one must have signed a client; None: any client may connect."""


def build_tls_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 or newer with these files; 1.3 if clients are checked. Raises `OSError` naming an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(files.cert_file), str(files.key_file))
    except OSError as error:
        raise OSError(f"tls.cert_file {files.cert_file}, tls.key_file {files.key_file}: {error}") from error
    # Go offers h2 where ALPN allows it; this server speaks HTTP/1.1.
    context.set_alpn_protocols(["http/1.1"])
    if files.client_ca_file is not None:
        _require_client_certificate(context, files.client_ca_file)
    return context


def _require_client_certificate(context: ssl.SSLContext, authorities: Path) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    # A resumed session is not checked again: a client would outlive its authority by two hours. TLS 1.2 has a second way
    # to resume, a cache in the server, which Python cannot switch off.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_verify_locations(str(authorities))
    except OSError as error:
        raise OSError(f"tls.client_ca_file {authorities}: {error}") from error
