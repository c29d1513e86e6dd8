"""Signs the checksums with cosign and a key, and checks it: both without a network.

No transparency log and no time stamp is asked: who trusts the public key, trusts the release.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PASSWORD_VARIABLE = "COSIGN_PASSWORD"  # noqa: S105 - a name


def create_key(cosign: Path, prefix: Path) -> None:
    """Write PREFIX.key and PREFIX.pub; the key's password is empty."""
    _run(cosign, "generate-key-pair", "--output-key-prefix", str(prefix))


def sign_file(cosign: Path, path: Path, *, key: Path, bundle: Path) -> None:
    """Write the bundle. Raises `CalledProcessError`; a key's password comes in `COSIGN_PASSWORD`."""
    offline = ("--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format")
    _run(cosign, "sign-blob", "--yes", "--key", str(key), "--bundle", str(bundle), *offline, str(path))


def verify_file(cosign: Path, path: Path, *, public_key: Path, bundle: Path) -> None:
    """Raises `CalledProcessError` unless the bundle is this file's, by that key."""
    offline = ("--insecure-ignore-tlog", "--offline", "--new-bundle-format")
    _run(cosign, "verify-blob", "--key", str(public_key), "--bundle", str(bundle), *offline, str(path))


def _run(cosign: Path, *arguments: str) -> None:
    environment = {PASSWORD_VARIABLE: "", **os.environ}
    subprocess.run([cosign, *arguments], env=environment, check=True, capture_output=True)  # noqa: S603 - no shell
