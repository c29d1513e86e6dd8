"""Debian packages, fetched with apt and unpacked, never installed: in lists and a cache of their own.

The mirror is the one that this machine has in its own sources, with other suites; DEBIAN_MIRROR names another one, and
its neighbour `debian-security` is then where the security suites are.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("bullseye", "bookworm")
COMPONENTS = "main"
FETCH_SECONDS = 600
QUIET = ("-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=2")


class NoPackagesError(Exception):
    """No mirror that answers has them."""


@dataclass(frozen=True, slots=True)
class Packages:
    root: Path

    def newest(self, pattern: str) -> str:
        """Of the packages of such a name, by the numbers in it."""
        names = self._apt("apt-cache", "pkgnames", pattern.partition("(")[0].replace("\\", "")).split()
        fitting = [name for name in names if re.fullmatch(pattern, name)]
        if not fitting:
            raise NoPackagesError(f"the Debian mirror has no package {pattern}: DEBIAN_MIRROR names another one")
        return max(fitting, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])

    def needed_by(self, name: str) -> list[str]:
        lines = self._apt("apt-cache", "depends", "--important", name).splitlines()
        return [line.partition("Depends: ")[2] for line in lines if "Depends: " in line]

    def version(self, name: str) -> str:
        return self._apt("apt-cache", "show", "--no-all-versions", name).partition("\nVersion: ")[2].partition("\n")[0]

    def unpack(self, name: str, into: Path, *paths: str) -> None:
        """Those paths in it (`./boot/*`), or everything."""
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            self._apt("apt-get", "download", name, where=Path(folder))
            (package,) = Path(folder).glob("*.deb")
            archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
            words = ["tar", "-x", "-C", str(into), "--no-same-owner", *(["--wildcards", *paths] if paths else [])]
            with archive:
                subprocess.run(words, stdin=archive.stdout, check=True)

    def _apt(self, program: str, *words: str, where: Path | None = None) -> str:
        state = [
            f"Dir::State={self.root}/state",
            f"Dir::State::status={self.root}/status",
            f"Dir::Cache={self.root}/cache",
        ]
        state += [f"Dir::Etc::sourcelist={self.root}/sources.list", "Dir::Etc::sourceparts=-"]
        options = [*QUIET, *(word for each in state for word in ("-o", each))]
        command = [program, *options, *words]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        if done.returncode:
            mirrors = (self.root / "sources.list").read_text()
            raise NoPackagesError(f"{program} {' '.join(words)}: {done.stderr.strip()}\nasked of:\n{mirrors}")
        return done.stdout


@contextmanager
def packages(
    suites: Sequence[str] = SUITES, components: str = COMPONENTS, *, has_security: bool = True
) -> Iterator[Packages]:
    """The lists as they are now, of these suites and of their security updates too."""
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        root = Path(folder)
        for each in ("state/lists/partial", "cache/archives/partial"):
            (root / each).mkdir(parents=True)
        (root / "status").touch()
        (root / "sources.list").write_text(
            "".join(f"{line}\n" for line in _sources(suites, components, has_security=has_security))
        )
        found = Packages(root)
        found._apt(
            "apt-get", "update", "--error-on=any", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"
        )
        yield found


def _sources(suites: Sequence[str], components: str, *, has_security: bool) -> Iterable[str]:
    main, security = _mirrors()
    for suite in suites:
        yield f"deb [signed-by={KEYRING}] {main} {suite} {components}"
        if has_security:
            yield f"deb [signed-by={KEYRING}] {security} {suite}-security {components}"


def _mirrors() -> Sequence[str]:
    if mirror := os.environ.get("DEBIAN_MIRROR", "").rstrip("/"):
        return mirror, mirror.removesuffix("/debian") + "/debian-security"
    codename = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    own = codename.group(1) if codename else ""
    words = ["apt-get", "--print-uris", "update"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^'(\S+)/dists/(\S+)/InRelease'", said, re.MULTILINE)
    # Others name their suites so too. Debian's own mirror has its updates beside it.
    mains = sorted((uri for uri, suite in found if suite == own), key=lambda uri: (uri, f"{own}-updates") not in found)
    securities = [uri for uri, suite in found if suite == f"{own}-security"]
    if not mains or not securities:
        raise NoPackagesError(f"apt's sources name no mirror of {own} and {own}-security: DEBIAN_MIRROR names one")
    return mains[0], securities[0]
