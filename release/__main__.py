"""`make release VERSION=..`: makes every file of a release of HEAD, in build/release/VERSION.

Wants root (images), Go (syft, cosign), and for arm64 a cross compiler and qemu; `.ci/need release` names what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from images.archive import read_archive
from release.archives import write_tar
from release.artifacts import IMAGE_NAMES, ReleaseBuilder, list_parts
from release.checksums import CHECKSUMS, write_checksums
from release.krew import write_krew_manifest
from release.programs import build_program
from release.sbom import write_sbom
from release.signing import create_key, sign_file, verify_file
from release.sources import ReleaseError, ReleaseSources, check_versions, export_commit

REPOSITORY = Path(__file__).parents[1]
ARCHITECTURES = ("amd64", "arm64")
BUNDLE = f"{CHECKSUMS}.sigstore.json"
TRIAL_KEY = "trial-key"
"""Made for one run where no key is given, and thrown away: it shows that signing works, not whose release it is."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when every file is there and the signature is good."""
    options = build_parser().parse_args(arguments)
    os.umask(0o022)
    target: Path = options.out / options.version
    with tempfile.TemporaryDirectory(prefix="vrampack-release-") as folder:
        try:
            sources = export_commit(REPOSITORY, Path(folder) / "sources")
            check_versions(sources, options.version)
        except ReleaseError as error:
            sys.stderr.write(f"make release: {error}\n")
            return 1
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        build_files(sources, target, options.arch or ARCHITECTURES)
        sign_release(target, options.key, Path(folder))
    for path in sorted(target.iterdir()):
        sys.stdout.write(f"{path.stat().st_size / 1e6:9.3f} MB  {path.name}\n")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The flags of `make release`."""
    made = argparse.ArgumentParser(prog="python -m release", description="Make every file of a release of HEAD.")
    made.add_argument("version", help="what pyproject.toml says, and the chart")
    made.add_argument("--out", type=Path, default=REPOSITORY / "build/release", metavar="DIR")
    made.add_argument("--arch", action="append", choices=ARCHITECTURES, help="one of them; may be repeated")
    made.add_argument("--key", type=Path, help="cosign's private key; its password comes in COSIGN_PASSWORD")
    return made


def build_files(sources: ReleaseSources, target: Path, archs: Sequence[str]) -> None:
    """All but checksums and signature of the whole: these same sources make these same bytes."""
    builder = ReleaseBuilder(sources, target)
    syft = build_program("syft")
    images = []
    for parts in list_parts():
        for arch in archs:
            image = builder.build_image(parts, arch)
            listed = target / f"{image.stem}.cdx.json"
            name, written_at = IMAGE_NAMES[parts], sources.committed_at
            write_sbom(syft, image, listed, name=name, version=sources.version, written_at=written_at)
            archive = read_archive(image)
            size = sum(layer.size_bytes for layer in archive.layers)
            images.append({"file": image.name, "arch": arch, "digest": archive.digest, "compressed_bytes": size})
    builder.build_wheel()
    builder.build_plugin()
    for arch in archs:
        builder.build_hook(arch)
    builder.pack_manifests()
    builder.write_image_list(archs)
    packed_plugin = target / f"kubectl-inspect_cgpu-{sources.version}.tar.gz"
    write_krew_manifest(target / "inspect-cgpu.yaml", packed_plugin, sources.version)
    facts = {"version": sources.version, "revision": sources.revision, "images": images}
    (target / "release.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    # The tarball has checksums of what is in it; outside they cover the tarball too.
    write_checksums(target)
    whole = target / f"vrampack-{sources.version}-airgapped.tar"
    contents = {f"vrampack-{sources.version}/{path.name}": path for path in target.iterdir()}
    write_tar(whole, contents, written_at=sources.committed_at)
    write_checksums(target)


def sign_release(target: Path, key: Path | None, scratch: Path) -> None:
    """Sign the checksums, and check what was made. Raises `CalledProcessError`."""
    cosign = build_program("cosign")
    public_key = key.with_suffix(".pub") if key else target / f"{TRIAL_KEY}.pub"
    if key is None:
        create_key(cosign, scratch / TRIAL_KEY)
        key = scratch / f"{TRIAL_KEY}.key"
        shutil.copy(scratch / f"{TRIAL_KEY}.pub", public_key)
        sys.stdout.write(
            "make release: signed with a key made for this run and thrown away; a real one is KEY=cosign.key\n"
        )
    elif public_key.exists():
        shutil.copy(public_key, target / "cosign.pub")
    sign_file(cosign, target / CHECKSUMS, key=key, bundle=target / BUNDLE)
    verify_file(cosign, target / CHECKSUMS, public_key=public_key, bundle=target / BUNDLE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
