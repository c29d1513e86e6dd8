"""`vrampack certificates`: makes or renews the certificate of the admission webhook once, then exits.

    Secret vrampack-admission:  tls.crt, tls.key   mounted by the extender, which reads them again when they change
                                ca.crt, ca.key     the authority: it stays, so that a renewal needs no new trust

The webhook configuration gets the authority before the Secret is written, so a server never presents a certificate that no
API server trusts. Of two concurrent runs, one is refused by the Secret's resourceVersion and does its work at its next run.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from vrampack.cli.arguments import CommandParser, parse_number_between
from vrampack.cli.certificates.key_pairs import ServingCertificate, read_expiry, renew_if_due
from vrampack.cli.cluster_command import add_cluster_flags, open_api
from vrampack.cli.errors import report_error
from vrampack.cli.output import write_output
from vrampack.kube.certificate_api import CertificateApi
from vrampack.kube.errors import CredentialsError, NoAnswerError, RefusedError

SECRET_NAME = "vrampack-admission"  # noqa: S105 - the name of a Secret
SERVICE_NAME = "vrampack-admission"
WEBHOOK_CONFIGURATION_NAME = "vrampack-environment"
WEBHOOK_NAME = "environment.vrampack.dev"
SECRET_KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""Keys of the Secret, in the order of the fields of `ServingCertificate`."""
MAX_DAYS = 825
"""Strict clients reject a certificate that is valid for longer."""
CALL_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Make or renew the certificate once; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        text = asyncio.run(_renew(options))
    except (CredentialsError, RefusedError, NoAnswerError) as error:
        return report_error(str(error), 1)
    except ValueError as error:
        return report_error(
            f"secret {options.namespace}/{SECRET_NAME}: {error}; delete it, and the next run makes another", 1
        )
    write_output(f"{text}\n")
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack certificates", description="Make or renew the certificate of the admission webhook."
    )
    made.add_argument(
        "--namespace", default="vrampack-system", metavar="NAME", help="where the Secret and the Service are"
    )
    made.add_argument(
        "--days",
        type=parse_number_between(1, MAX_DAYS),
        default=90,
        metavar="N",
        help="how long a certificate is valid; it is renewed when a third of that is left (90)",
    )
    add_cluster_flags(made)
    return made


async def _renew(options: argparse.Namespace) -> str:
    async with open_api(CertificateApi, options, "certificates") as api:
        return await renew_certificate(api, options.namespace, timedelta(days=options.days), datetime.now(UTC))


async def renew_certificate(api: CertificateApi, namespace: str, lifetime: timedelta, now: datetime) -> str:
    """Renew what is due; returns a sentence about what was done."""
    found = await api.get_secret(namespace, SECRET_NAME, timeout_seconds=CALL_SECONDS)
    kept = None if found is None else _decode_secret(found.data or {})
    names = [f"{SERVICE_NAME}.{namespace}.svc", f"{SERVICE_NAME}.{namespace}.svc.cluster.local"]
    current = renew_if_due(kept, names, lifetime, now)
    await api.patch_webhook_ca_bundle(
        WEBHOOK_CONFIGURATION_NAME, WEBHOOK_NAME, current.authorities, timeout_seconds=CALL_SECONDS
    )
    if current is kept:
        return f"certificate good until {read_expiry(current):%Y-%m-%d}, nothing to renew"
    data = dict(
        zip(SECRET_KEYS, (current.authorities, current.authority_key, current.certificate, current.key), strict=True)
    )
    version = found.metadata.resource_version if found is not None else ""
    await api.write_secret(namespace, SECRET_NAME, data, version=version, timeout_seconds=CALL_SECONDS)
    return f"certificate made, good until {read_expiry(current):%Y-%m-%d}"


def _decode_secret(data: Mapping[str, bytes]) -> ServingCertificate:
    if missing := [name for name in SECRET_KEYS if name not in data]:
        raise ValueError(f"{missing[0]} is missing")
    return ServingCertificate(*(data[name] for name in SECRET_KEYS))
