"""The webhook's certificate: strict enough for Python 3.13, renewed in time, its authority kept."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from vrampack.cli.certificates.key_pairs import ServingCertificate, read_expiry, renew_if_due
from vrampack.cli.certificates.main import SECRET_KEYS, renew_certificate
from vrampack.kube.certificate_api import CertificateApi
from vrampack.kube.errors import RefusedError
from vrampack.kube.objects import ObjectMeta, SecretObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["vrampack-admission.vrampack-system.svc", "vrampack-admission.vrampack-system.svc.cluster.local"]
LIFE = timedelta(days=90)
DAY = timedelta(days=1)


def authorities(kept: ServingCertificate) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(kept.authorities)


def has_handshake(shown: ServingCertificate, trusted: bytes, folder: Path, name: str = NAMES[0]) -> bool:
    """Whether a client that checks as Python 3.13 does accepts the server."""
    for file, content in (("crt", shown.certificate), ("key", shown.key)):
        (folder / file).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "crt", folder / "key")
    client = ssl.create_default_context(cadata=trusted.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_strict_client_accepts_the_certificate_under_both_names_and_no_other(tmp_path: Path) -> None:
    made = renew_if_due(None, NAMES, LIFE, datetime.now(UTC))
    assert all(has_handshake(made, made.authorities, tmp_path, name) for name in NAMES)
    assert not has_handshake(made, made.authorities, tmp_path, "another.vrampack-system.svc")
    another = renew_if_due(None, NAMES, LIFE, datetime.now(UTC))
    assert not has_handshake(made, another.authorities, tmp_path)


def test_the_certificate_has_the_extensions_that_strict_clients_need() -> None:
    made = renew_if_due(None, NAMES, LIFE, NOW)
    (authority,) = authorities(made)
    leaf = x509.load_pem_x509_certificate(made.certificate)
    critical = {
        each.subject.rfc4514_string(): {extension.oid._name for extension in each.extensions if extension.critical}
        for each in (authority, leaf)
    }
    assert set(map(frozenset, critical.values())) == {frozenset({"basicConstraints", "keyUsage"})}
    named = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert named == authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest


def test_the_certificate_is_kept_until_a_third_of_its_life_is_left() -> None:
    made = renew_if_due(None, NAMES, LIFE, NOW)
    assert read_expiry(made) == NOW + LIFE
    assert renew_if_due(made, NAMES, LIFE, NOW + 59 * DAY) is made
    later = renew_if_due(made, NAMES, LIFE, NOW + 60 * DAY)
    assert (later.authorities, later.authority_key) == (made.authorities, made.authority_key)
    assert later.certificate != made.certificate
    assert later.key != made.key
    assert read_expiry(later) == NOW + 150 * DAY


def test_same_authority_reissues_on_changed_names_or_a_wrong_key_pair() -> None:
    made, another = (renew_if_due(None, NAMES, LIFE, NOW) for _ in range(2))
    renamed = renew_if_due(made, ["other.svc"], LIFE, NOW)
    mixed = ServingCertificate(made.authorities, made.authority_key, another.certificate, another.key)
    keyless = ServingCertificate(made.authorities, made.authority_key, made.certificate, another.key)
    for fresh in (renamed, renew_if_due(mixed, NAMES, LIFE, NOW), renew_if_due(keyless, NAMES, LIFE, NOW)):
        assert fresh.authorities == made.authorities
        assert fresh.certificate != made.certificate


def test_a_new_authority_is_trusted_beside_the_old_one() -> None:
    """So that replicas which still show the old certificate are trusted."""
    made = renew_if_due(None, NAMES, LIFE, NOW)
    late = NOW + timedelta(days=3650) - LIFE + DAY
    fresh = renew_if_due(made, NAMES, LIFE, late)
    first, second = authorities(fresh)
    assert second == authorities(made)[0]
    x509.load_pem_x509_certificate(fresh.certificate).verify_directly_issued_by(first)
    assert renew_if_due(fresh, NAMES, LIFE, late + DAY) is fresh
    # Ten years later the first one has long expired.
    third = renew_if_due(fresh, NAMES, LIFE, late + timedelta(days=3650) - LIFE + DAY)
    assert authorities(third)[1:] == [first]


class KeptCertificates(CertificateApi):
    """An API server with one Secret, as far as `look` calls it. What is done is written down in order."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] | None = None
        self.version = 0
        self.trusted = b""
        self.done: list[str] = []

    async def get_secret(self, namespace: str, name: str, *, timeout_seconds: float) -> SecretObject | None:  # noqa: ARG002 - the real one's shape
        metadata = ObjectMeta(resource_version=str(self.version))
        return None if self.data is None else SecretObject(metadata, self.data)

    async def write_secret(
        self,
        namespace: str,  # noqa: ARG002 - the real one's shape
        name: str,  # noqa: ARG002 - the real one's shape
        data: Mapping[str, bytes],
        *,
        version: str,
        timeout_seconds: float,  # noqa: ARG002 - the real one's shape
    ) -> None:
        if version != (str(self.version) if self.data is not None else ""):
            raise RefusedError(409, "Conflict", "somebody was faster")
        self.done.append("write")
        self.data, self.version = dict(data), self.version + 1

    async def patch_webhook_ca_bundle(
        self,
        configuration: str,  # noqa: ARG002 - the real one's shape
        webhook: str,  # noqa: ARG002 - the same
        bundle: bytes,
        *,
        timeout_seconds: float,  # noqa: ARG002 - the same
    ) -> None:
        self.done.append("trust")
        self.trusted = bundle


async def test_the_authority_is_trusted_before_the_certificate_is_used() -> None:
    api = KeptCertificates()
    assert await renew_certificate(api, "vrampack-system", LIFE, NOW) == "certificate made, good until 2026-04-01"
    assert api.done == ["trust", "write"]
    assert api.data is not None
    assert sorted(api.data) == sorted(SECRET_KEYS)
    assert api.trusted == api.data["ca.crt"]


async def test_a_second_run_only_restores_trust_in_the_authority() -> None:
    """A configuration that was deleted and applied again has lost it."""
    api = KeptCertificates()
    await renew_certificate(api, "vrampack-system", LIFE, NOW)
    kept, api.trusted = api.data, b""
    assert "nothing to renew" in await renew_certificate(api, "vrampack-system", LIFE, NOW + DAY)
    assert api.done == ["trust", "write", "trust"]
    assert api.data is kept
    assert kept is not None
    assert api.trusted == kept["ca.crt"]


@pytest.mark.parametrize(
    "spoiled", [{"ca.key": None}, {"ca.crt": b"?"}, {"ca.key": b"?"}, {"tls.crt": b"?"}, {"tls.key": b"?"}], ids=str
)
async def test_a_secret_that_cannot_be_read_is_left_as_it_is(spoiled: dict[str, bytes | None]) -> None:
    api = KeptCertificates()
    await renew_certificate(api, "vrampack-system", LIFE, NOW)
    data = {**(api.data or {}), **spoiled}
    api.data = {name: content for name, content in data.items() if content is not None}
    with pytest.raises(ValueError, match=r"."):
        await renew_certificate(api, "vrampack-system", LIFE, NOW)
    assert api.done == ["trust", "write"]


async def test_authority_whose_key_does_not_match_is_not_used() -> None:
    api, other = KeptCertificates(), KeptCertificates()
    for each in (api, other):
        await renew_certificate(each, "vrampack-system", LIFE, NOW)
    api.data = {**(api.data or {}), "ca.key": (other.data or {})["ca.key"]}
    with pytest.raises(ValueError, match="does not belong to the authority"):
        await renew_certificate(api, "vrampack-system", LIFE, NOW)
