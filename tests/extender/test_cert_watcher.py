"""The certificate of a listener: replaced while connections are open, never by a bad one, and never expiring silently."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from extender.admission_settings import AdmissionTlsSettings
from extender.http.admission_routes import build_admission_app
from extender.http.admission_webhook import AdmissionReviewer
from extender.http.cert_watcher import REPEAT_WARNING_SECONDS, CertWatcher
from extender.metrics import AdmissionMetrics
from tests.support.verb_listener import Address, build_request, open_connection, read_reply, run_listener
from vrampack.cards.env_injection import InjectionNames
from vrampack.cli.certificates.key_pairs import ServingCertificate, renew_if_due
from vrampack.config.errors import SettingsError

NAME = "vrampack-admission.vrampack-system.svc"
LIFE = timedelta(days=90)
CALL = build_request("/mutate", b"{}")


class CertificateFiles:
    """The folder of a pair, as kubelet would lay it out."""

    def __init__(self, folder: Path) -> None:
        self.settings = AdmissionTlsSettings(cert_file=folder / "tls.crt", key_file=folder / "tls.key")
        self._written = 0

    def write(self, made: ServingCertificate) -> None:
        self.put("tls.crt", made.certificate)
        self.put("tls.key", made.key)

    def put(self, name: str, content: bytes) -> None:
        """In one step, as another file: times may not tell two writes apart."""
        self._written += 1
        path = self.settings.cert_file
        assert path is not None
        fresh = path.with_name(f"{self._written}")
        fresh.write_bytes(content)
        fresh.replace(path.with_name(name))


@pytest.fixture
def metrics() -> AdmissionMetrics:
    return AdmissionMetrics("test")


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def pairs(now: datetime) -> tuple[ServingCertificate, ServingCertificate]:
    """The first one lies there at the start; the second is signed by the same authority."""
    first = renew_if_due(None, [NAME], LIFE, now)
    return first, renew_if_due(first, [NAME], 4 * LIFE, now)


@pytest.fixture
def first(pairs: tuple[ServingCertificate, ServingCertificate]) -> ServingCertificate:
    return pairs[0]


@pytest.fixture
def files(tmp_path: Path, first: ServingCertificate) -> CertificateFiles:
    made = CertificateFiles(tmp_path)
    made.write(first)
    return made


@pytest.fixture
def certificates(files: CertificateFiles, metrics: AdmissionMetrics, now: datetime) -> CertWatcher:
    return CertWatcher("admission", files.settings, metrics.certificates, now=now.timestamp)


@pytest.fixture
def address(certificates: CertWatcher, metrics: AdmissionMetrics) -> Iterator[Address]:
    app = build_admission_app(AdmissionReviewer(InjectionNames(), metrics))
    with run_listener(app, receive_seconds=5, tls=certificates.context) as at:
        yield at


def wrapped(address: Address, trusted: ServingCertificate) -> ssl.SSLSocket:
    """A handshake as the API server makes it, by the name of the Service, and strictly."""
    context = ssl.create_default_context(cadata=trusted.authorities.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context.wrap_socket(open_connection(address), server_hostname=NAME)


def read_served_certificate(address: Address, trusted: ServingCertificate) -> str:
    with closing(wrapped(address, trusted)) as client:
        return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"")


def sample(metrics: AdmissionMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"vrampack_certificate_{name}", {"listener": "admission"})


async def test_new_connections_get_the_new_certificate_and_open_ones_continue(
    address: Address,
    certificates: CertWatcher,
    files: CertificateFiles,
    metrics: AdmissionMetrics,
    pairs: tuple[ServingCertificate, ServingCertificate],
    now: datetime,
) -> None:
    first, second = pairs
    assert read_served_certificate(address, first) == first.certificate.decode()
    assert sample(metrics, "expiry_seconds") == (now + LIFE).timestamp()
    with wrapped(address, first) as standing:
        standing.sendall(CALL)
        assert read_reply(standing)[0] == 400
        files.write(second)
        await certificates.reload_if_changed()
        assert read_served_certificate(address, first) == second.certificate.decode()
        assert sample(metrics, "expiry_seconds") == (now + 4 * LIFE).timestamp()
        standing.sendall(CALL)
        assert read_reply(standing)[0] == 400


async def test_a_certificate_and_key_replaced_in_two_steps_are_never_mixed(
    address: Address,
    certificates: CertWatcher,
    files: CertificateFiles,
    metrics: AdmissionMetrics,
    pairs: tuple[ServingCertificate, ServingCertificate],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = pairs
    files.put("tls.crt", second.certificate)
    await certificates.reload_if_changed()
    assert read_served_certificate(address, first) == first.certificate.decode()
    assert sample(metrics, "reload_failures_total") == 1
    assert "certificate not reloaded listener=admission" in caplog.text
    await certificates.reload_if_changed()
    assert sample(metrics, "reload_failures_total") == 1
    files.put("tls.key", second.key)
    await certificates.reload_if_changed()
    assert read_served_certificate(address, first) == second.certificate.decode()


@pytest.mark.parametrize("content", [b"", b"not PEM"])
async def test_an_invalid_certificate_keeps_the_old_one(
    address: Address,
    certificates: CertWatcher,
    files: CertificateFiles,
    metrics: AdmissionMetrics,
    first: ServingCertificate,
    content: bytes,
) -> None:
    files.put("tls.crt", content)
    await certificates.reload_if_changed()
    assert read_served_certificate(address, first) == first.certificate.decode()
    assert sample(metrics, "reload_failures_total") == 1


def test_the_server_does_not_start_without_a_usable_certificate(
    files: CertificateFiles, metrics: AdmissionMetrics, now: datetime
) -> None:
    files.put("tls.key", b"not PEM")
    with pytest.raises(SettingsError, match=r"tls\.cert_file .*tls\.crt, tls\.key_file .*tls\.key"):
        CertWatcher("admission", files.settings, metrics.certificates, now=now.timestamp)


@pytest.mark.parametrize(
    ("days", "level", "text"),
    [
        (74, None, ""),  # 90 / 6 = 15 days are left from day 75 on
        (76, logging.WARNING, "expires soon"),
        (91, logging.ERROR, "certificate expired listener=admission"),
    ],
)
def test_expiry_is_logged_in_time_and_once_an_hour(
    files: CertificateFiles,
    now: datetime,
    caplog: pytest.LogCaptureFixture,
    days: int,
    level: int | None,
    text: str,
) -> None:
    clock = now.timestamp() + days * 86_400
    made = CertWatcher("admission", files.settings, AdmissionMetrics("test").certificates, now=lambda: clock)
    said = 0 if level is None else 1
    made.on_check()
    made.on_check()
    assert [record.levelno for record in caplog.records] == [level] * said
    assert text in caplog.text
    clock += REPEAT_WARNING_SECONDS
    made.on_check()
    assert len(caplog.records) == 2 * said
