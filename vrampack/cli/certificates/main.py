"""`vrampack certificates`: looks once after the certificate of the admission webhook, and ends.

    Secret vrampack-admission:  tls.crt, tls.key   mounted by the extender, which reads them again when they change
                                ca.crt, ca.key     the authority: it stays, so that a renewal needs nobody's trust anew

The webhook configuration is told of the authority before the Secret is written: a server never shows what no API server
trusts. Of two runs at once one is refused by the Secret's version, and does its work when it is run again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vrampack.cli.certificates.pairs import Signed, ends, renewed
from vrampack.cli.kubeconfig import kubeconfig_of
from vrampack.cli.refusal import refuse
from vrampack.kube.client import Api, load_credentials
from vrampack.kube.errors import CredentialsError, NoAnswerError, RefusedError

SECRET = "vrampack-admission"  # noqa: S105 - the name of a Secret
SERVICE = "vrampack-admission"
CONFIGURATION = "vrampack-environment"
WEBHOOK = "environment.vrampack.dev"
FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
"""Of the Secret, in the order of the fields of `Signed`."""
CALL_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Look once; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        text = asyncio.run(_look(options))
    except (CredentialsError, RefusedError, NoAnswerError) as error:
        return refuse(str(error), 1)
    except ValueError as error:
        return refuse(f"secret {options.namespace}/{SECRET}: {error}; delete it, and the next run makes another", 1)
    sys.stdout.write(f"{text}\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags of this command."""
    made = argparse.ArgumentParser(
        prog="vrampack certificates", description="Make or renew the certificate of the admission webhook."
    )
    made.add_argument("--namespace", default="vrampack-system", metavar="NAME", help="of the Secret and the Service")
    made.add_argument("--days", type=_days, default=90, metavar="N", help="life of a certificate; renewed at a third")
    made.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="$KUBECONFIG, ~/.kube/config or this pod's account without it"
    )
    made.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one without it")
    return made


async def _look(options: argparse.Namespace) -> str:
    configuration = await load_credentials(kubeconfig_of(options.kubeconfig), options.context)
    api = Api(configuration, user_agent="vrampack-certificates")
    try:
        return await look(api, options.namespace, timedelta(days=options.days), datetime.now(UTC))
    finally:
        await api.close()


async def look(api: Api, namespace: str, life: timedelta, now: datetime) -> str:
    """Renew what has to be renewed, and say what was done."""
    found = await api.get_secret(namespace, SECRET, timeout_seconds=CALL_SECONDS)
    kept = None if found is None else _read(found.data or {})
    names = [f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"]
    current = renewed(kept, names, life, now)
    await api.patch_webhook_ca_bundle(CONFIGURATION, WEBHOOK, current.authorities, timeout_seconds=CALL_SECONDS)
    if current is kept:
        return f"certificate good until {ends(current):%Y-%m-%d}, nothing to renew"
    data = dict(zip(FILES, (current.authorities, current.authority_key, current.certificate, current.key), strict=True))
    version = found.metadata.resource_version if found is not None else ""
    await api.write_secret(namespace, SECRET, data, version=version, timeout_seconds=CALL_SECONDS)
    return f"certificate made, good until {ends(current):%Y-%m-%d}"


def _read(data: Mapping[str, bytes]) -> Signed:
    if missing := [name for name in FILES if name not in data]:
        raise ValueError(f"{missing[0]} is missing")
    return Signed(*(data[name] for name in FILES))


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 825:  # noqa: PLR2004 - what strict clients take
        raise argparse.ArgumentTypeError(f"{text}: from 1 to 825")
    return days
