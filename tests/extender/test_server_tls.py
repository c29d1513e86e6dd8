"""The listener with mutual TLS: only clients of our own authority, in date, and no client may dawdle over a handshake."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.http.cert_watcher import CertWatcher
from extender.metrics import ExtenderMetrics
from extender.settings import TlsSettings
from tests.support import recorded_requests
from tests.support.certificates import CertificateAuthority, KeyPair
from tests.support.in_memory_extender import PREFIX, InMemoryExtender
from tests.support.verb_listener import Address, build_request, is_cut, open_connection, read_reply, run_listener
from vrampack.http.tls_context import build_tls_context

DEADLINE_SECONDS = 0.3
FILTER = build_request(f"{PREFIX}/filter", recorded_requests.read_recording("filter.ncc-true.scheduler-1.36.3.json"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """The one that signs schedulers and this server."""
    return CertificateAuthority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def tls(authority: CertificateAuthority) -> TlsSettings:
    """What the service is configured with."""
    server = authority.issue_pair("server")
    return TlsSettings(cert_file=server.certificate, key_file=server.key, client_ca_file=authority.ca_file)


@pytest.fixture(scope="module")
def address(tls: TlsSettings) -> Iterator[Address]:
    """The recorded cluster behind mutual TLS, as the service sets it up."""
    app = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods()).app
    watcher = CertWatcher("verbs", tls, ExtenderMetrics("test").certificates, now=time.time)
    with run_listener(app, receive_seconds=DEADLINE_SECONDS, tls=watcher.context) as at:
        yield at


def signed(authority: CertificateAuthority, folder: Path, *, days: int) -> KeyPair:
    """A client certificate of `authority` that ends in so many days, or ended that long ago."""
    pair = KeyPair(folder / "late.crt", folder / "late.key")
    asked, ours = folder / "late.csr", authority.ca_file.parent
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(pair.key)]
    signer = ["-CA", str(authority.ca_file), "-CAkey", str(authority.ca_file.with_suffix(".key")), "-set_serial", "7"]
    leaf = ["-extfile", str(ours / "openssl.cnf"), "-extensions", "leaf", "-days", str(days)]
    for command in (
        ["req", "-new", *key, "-subj", "/CN=late", "-out", str(asked)],
        ["x509", "-req", "-in", str(asked), *signer, *leaf, "-out", str(pair.certificate)],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=30)
    return pair


def wrapped(address: Address, trusted: CertificateAuthority, shown: KeyPair | None) -> ssl.SSLSocket:
    """A handshake as a client that trusts `trusted` and shows this certificate."""
    context = ssl.create_default_context(cafile=str(trusted.ca_file))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context.wrap_socket(open_connection(address), server_hostname="127.0.0.1")


def call(address: Address, trusted: CertificateAuthority, shown: KeyPair | None) -> int:
    """The status of one filter. With TLS 1.3 a client learns of its refusal at its first read."""
    with wrapped(address, trusted, shown) as client:
        client.sendall(FILTER)
        return read_reply(client)[0]


def test_a_client_of_our_authority_is_served(address: Address, authority: CertificateAuthority) -> None:
    with wrapped(address, authority, authority.issue_pair("scheduler")) as client:
        client.sendall(FILTER)
        assert read_reply(client)[0] == 200


def test_clients_of_other_authorities_fail_the_handshake(
    address: Address, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """A client without a certificate, one of another authority, and one of ours whose certificate has expired."""
    theirs = CertificateAuthority(tmp_path / "theirs").issue_pair("scheduler")
    for shown in (None, theirs, signed(authority, tmp_path, days=-1)):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            call(address, authority, shown)


def test_a_certificate_is_accepted_before_its_expiry(
    address: Address, authority: CertificateAuthority, tmp_path: Path
) -> None:
    assert call(address, authority, signed(authority, tmp_path, days=1)) == 200


def test_plain_http_is_not_answered(address: Address) -> None:
    with open_connection(address) as client:
        client.sendall(FILTER)
        with pytest.raises(ConnectionError):
            read_reply(client)


def test_only_http_1_1_is_offered(address: Address, authority: CertificateAuthority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.set_alpn_protocols(["h2", "http/1.1"])
    pair = authority.issue_pair("scheduler-h2")
    context.load_cert_chain(pair.certificate, pair.key)
    with context.wrap_socket(open_connection(address), server_hostname="127.0.0.1") as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_no_session_is_resumed(address: Address, authority: CertificateAuthority) -> None:
    """A client that resumes a session is not checked again, even if another authority signs clients by then."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    pair = authority.issue_pair("scheduler-again")
    context.load_cert_chain(pair.certificate, pair.key)
    session = None
    for _ in range(2):
        with context.wrap_socket(open_connection(address), server_hostname="127.0.0.1", session=session) as client:
            client.sendall(FILTER)
            assert read_reply(client)[0] == 200
            assert (client.version(), client.session_reused) == ("TLSv1.3", False)
            session = client.session


def test_tls_1_2_which_resumes_sessions_in_another_way_is_refused(
    address: Address, authority: CertificateAuthority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(open_connection(address), server_hostname="127.0.0.1")


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x01"])
def test_an_unfinished_handshake_is_cut(address: Address, beginning: bytes) -> None:
    with open_connection(address) as client:
        client.sendall(beginning)
        assert is_cut(client)


def test_silence_after_the_handshake_is_cut(address: Address, authority: CertificateAuthority) -> None:
    with wrapped(address, authority, authority.issue_pair("quiet")) as client:
        assert is_cut(client)


@pytest.mark.parametrize("field", ["cert_file", "key_file", "client_ca_file"])
@pytest.mark.parametrize("content", [None, "not PEM"])
def test_an_unusable_file_is_named(tls: TlsSettings, tmp_path: Path, field: str, content: str | None) -> None:
    path = tmp_path / "given.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OSError, match=f"tls.{field} {path}"):
        build_tls_context(tls.model_copy(update={field: path}))
