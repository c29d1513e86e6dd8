"""The webhook's own certificate authority and the certificate it signs, as PEM, and when either is renewed.

Python verifies more strictly than Go (from 3.13 by default): an authority must have critical basicConstraints and keyUsage,
a leaf must name its authority's key. Certificates made here pass both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
"""It signs only this one server and is stored beside the server's key, so a short life would protect nothing."""
CLOCK_SKEW = timedelta(hours=1)
"""How far certificates are backdated, so that they are valid at once on a host whose clock is slow."""


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """What is stored. `authorities` has the signing one first; the others signed certificates that may still be in use."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def renew_if_due(
    current: ServingCertificate | None, dns_names: Sequence[str], lifetime: timedelta, now: datetime
) -> ServingCertificate:
    """The authority and certificate to store: the current ones while they are still good.

    The certificate is renewed at a third of `lifetime`, for other names, or when another authority signs; the authority
    when it would expire before a certificate it signs. Raises `ValueError` when the stored ones cannot be read.
    """
    if current is None:
        authority, authority_key = _make_authority(now)
        return _sign([authority], authority_key, dns_names, lifetime, now)
    authorities = x509.load_pem_x509_certificates(current.authorities)
    authority_key = _read_key(current.authority_key)
    if authorities[0].public_key() != authority_key.public_key():
        raise ValueError("the key does not belong to the authority's certificate")
    if authorities[0].not_valid_after_utc - now < lifetime:
        authority, authority_key = _make_authority(now)
        valid = [each for each in authorities if each.not_valid_after_utc > now]
        return _sign([authority, *valid], authority_key, dns_names, lifetime, now)
    if _is_still_good(current, authorities[0], dns_names, lifetime, now):
        return current
    return _sign(authorities, authority_key, dns_names, lifetime, now)


def read_expiry(certificate: ServingCertificate) -> datetime:
    """When the certificate expires."""
    return x509.load_pem_x509_certificate(certificate.certificate).not_valid_after_utc


def _is_still_good(
    current: ServingCertificate,
    authority: x509.Certificate,
    dns_names: Sequence[str],
    lifetime: timedelta,
    now: datetime,
) -> bool:
    leaf = x509.load_pem_x509_certificate(current.certificate)
    try:
        leaf.verify_directly_issued_by(authority)
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False  # signed by another authority
    is_ours = leaf.public_key() == _read_key(current.key).public_key()
    is_young = leaf.not_valid_after_utc - now > lifetime / 3
    return is_ours and is_young and found.get_values_for_type(x509.DNSName) == list(dns_names)


def _make_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _build_name("vrampack admission authority")
    builder = _start_builder(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_build_key_usage(signs=True), critical=True)
    return builder.sign(key, SHA256()), key


def _sign(
    authorities: Sequence[x509.Certificate],
    authority_key: ec.EllipticCurvePrivateKey,
    dns_names: Sequence[str],
    lifetime: timedelta,
    now: datetime,
) -> ServingCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authorities[0]
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_build_key_usage(signs=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([x509.DNSName(each) for each in dns_names]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    ]
    builder = _start_builder(_build_name("vrampack admission"), issuer.subject, key.public_key(), now, lifetime)
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    leaf = builder.sign(authority_key, SHA256())
    bundle = b"".join(each.public_bytes(Encoding.PEM) for each in authorities)
    return ServingCertificate(bundle, _write_key(authority_key), leaf.public_bytes(Encoding.PEM), _write_key(key))


def _start_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - CLOCK_SKEW, now + lifetime
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _build_key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _build_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic-curve key, as this command makes them")  # noqa: TRY004 - the content, not its type
    return key


def _write_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
