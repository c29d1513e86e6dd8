"""`vrampack admission` as a process of its own, with a certificate for loopback."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import CertificateAuthority
from tests.support.processes import LOOPBACK, ManagedProcess, choose_free_ports
from tests.support.verb_listener import Address, open_connection


@dataclass(frozen=True, slots=True)
class AdmissionProcess:
    """A running webhook."""

    process: ManagedProcess
    address: Address
    health: Address
    authority: CertificateAuthority
    """The authority that signed its certificate."""

    def connect(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        """As an API server does, which shows no certificate unless `context` has one."""
        context = context or ssl.create_default_context(cafile=str(self.authority.ca_file))
        return context.wrap_socket(open_connection(self.address), server_hostname=LOOPBACK)


@contextmanager
def run_admission_process(
    folder: Path, *, client_ca_file: Path | None = None, program: Sequence[str] = (sys.executable,)
) -> Iterator[AdmissionProcess]:
    """A webhook that is ready; killed when the block ends, if it still runs. `program` is Python, with what leads to it."""
    authority = CertificateAuthority(folder / "webhook-authority")
    pair = authority.issue_pair("webhook")
    clients = f", client_ca_file: {client_ca_file}" if client_ca_file else ""
    config = folder / "admission.yaml"
    config.write_text(
        "apiVersion: vrampack.dev/v1\nkind: AdmissionWebhookConfiguration\ndeadlines: {drain_seconds: 0}\n"
        f"tls: {{cert_file: {pair.certificate}, key_file: {pair.key}{clients}}}\n"
    )
    admission, health = choose_free_ports(2)
    listen = ("--listen", f"{LOOPBACK}:{admission}", "--health-listen", f"{LOOPBACK}:{health}")
    command = [*program, "-m", "vrampack.cli", "admission", "--config", str(config), *listen]
    process = ManagedProcess("admission", command, directory=folder)
    process.start()
    try:
        process.wait_ready(f"http://{LOOPBACK}:{health}/readyz")
        yield AdmissionProcess(process, (LOOPBACK, admission), (LOOPBACK, health), authority)
    finally:
        process.kill()
