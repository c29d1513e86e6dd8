"""What is in an image, by syft, as CycloneDX: Debian packages, Python distributions, and whatever else it recognises.

syft writes a new serial number and the time into each run. Both are replaced, so that one image has one list.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from datetime import UTC, datetime
from pathlib import Path

from images.archive import read_archive


def write_sbom(syft: Path, image: Path, target: Path, *, name: str, version: str, written_at: int) -> None:
    """List the packages of an OCI archive. Raises `CalledProcessError` when syft cannot read it."""
    document = json.loads(scan_image(syft, image, "cyclonedx-json", name=name, version=version))
    digest = read_archive(image).digest
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}@{digest}").urn
    document["metadata"]["timestamp"] = datetime.fromtimestamp(written_at, UTC).isoformat()
    document["components"].sort(key=lambda component: (component["type"], component["name"], component["bom-ref"]))
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def scan_image(syft: Path, image: Path, form: str, *, name: str, version: str) -> str:
    """What syft prints in that form; all layers, no network."""
    options = ("--quiet", "--output", form, "--source-name", name, "--source-version", version)
    environment = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
    command: list[str | Path] = [syft, "scan", *options, f"oci-archive:{image.name}"]
    # From the image's folder: its path is no part of the list.
    return subprocess.run(  # noqa: S603 - no shell
        command, cwd=image.parent, env=environment, check=True, capture_output=True, text=True
    ).stdout
