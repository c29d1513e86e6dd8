"""A certificate authority for one test cluster, made with the `openssl` program.

Python verifies strictly (from 3.13 by default): the authority needs critical basicConstraints and
keyUsage, each leaf a keyUsage and an authorityKeyIdentifier. Go would accept less, so certificates
that merely please the API server's own clients would hide what our Python client meets.
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIGURATION = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""
SERVED_NAMES = ("IP:127.0.0.1", "DNS:localhost", "DNS:kubernetes.default.svc")
"""Names and addresses by which a server on loopback is called."""
LIFETIME_DAYS = "2"
"""Longer than any run of the suite, short enough that a forgotten key is worth nothing."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, as the two files every program here takes."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """Signs what the cluster's servers and clients show; `ca_file` is what trusts them."""

    def __init__(self, folder: Path, *, names: Sequence[str] = SERVED_NAMES) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._configuration = folder / "openssl.cnf"
        self._configuration.write_text(CONFIGURATION.format(names=", ".join(names)))
        self._pair = self._make("ca", "/CN=e2e-authority", "-extensions", "authority")

    @property
    def ca_file(self) -> Path:
        return self._pair.certificate

    def issue_pair(self, name: str, *, organization: str = "") -> KeyPair:
        """A leaf for the user or server `name`; `organization` is what Kubernetes reads as group."""
        subject = f"/O={organization}/CN={name}" if organization else f"/CN={name}"
        signer = ("-CA", str(self._pair.certificate), "-CAkey", str(self._pair.key))
        return self._make(name.replace(":", "-"), subject, "-extensions", "leaf", *signer)

    def build_server_tls(self, name: str = "server") -> ssl.SSLContext:
        """A new certificate, and the TLS of a server that shows it."""
        pair = self.issue_pair(name)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pair.certificate, pair.key)
        return tls

    def _make(self, stem: str, subject: str, *options: str) -> KeyPair:
        pair = KeyPair(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        # Elliptic keys: three of them take 30 ms, RSA ones up to a second.
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-config", str(self._configuration), "-keyout", str(pair.key), "-out", str(pair.certificate)]
        subprocess.run(
            [*command, *files, "-days", LIFETIME_DAYS, "-subj", subject, *options],
            check=True,
            capture_output=True,
            timeout=30,
        )
        return pair
