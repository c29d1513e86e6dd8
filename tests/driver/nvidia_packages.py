"""NVIDIA's driver as Debian packages it: the sources of the open modules, the libraries, nvidia-smi, and the firmware of the GSP.

Fetched by apt when a test wants them, and gone with the temporary folder they came in: libraries and firmware are NVIDIA's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.machine import packages

COMPONENTS = "contrib non-free non-free-firmware"
"""The components of a suite; `main` has nothing of NVIDIA's, and its list is the longest."""
SOURCE_PACKAGE = "nvidia-open-kernel-source"
USER_PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-smi")
FIRMWARE_PACKAGE = "firmware-nvidia-gsp"


@dataclass(frozen=True, slots=True)
class NvidiaRelease:
    """A release of the driver, and the Debian suite whose packages all have that version."""

    version: str
    suite: str
    revision: str

    @property
    def package_version(self) -> str:
        return f"{self.version}-{self.revision}"


RELEASES: Mapping[str, NvidiaRelease] = {
    "535": NvidiaRelease("535.261.03", "bookworm", "1"),
    "550": NvidiaRelease("550.163.01", "trixie", "2"),
}
"""By branch. Exact versions, since the fake GSP answers at the offsets of one release."""


def fetch_sources(branch: str, into: Path) -> None:
    """The archive of the open modules, below `into`/usr/src."""
    _fetch(RELEASES[branch], into, SOURCE_PACKAGE)


def fetch_user_space(branch: str, into: Path) -> None:
    """libcuda, NVML and nvidia-smi of that release, unpacked below `into`."""
    _fetch(RELEASES[branch], into, *USER_PACKAGES)


def fetch_firmware(branch: str, into: Path) -> None:
    """The files that nvidia.ko asks for by request_firmware, unpacked below `into`."""
    _fetch(RELEASES[branch], into, FIRMWARE_PACKAGE)


def _fetch(release: NvidiaRelease, into: Path, *names: str) -> None:
    into.mkdir(exist_ok=True)
    with packages.packages((release.suite,), COMPONENTS, has_security=False) as found:
        for name in names:
            found.unpack(f"{name}={release.package_version}", into)
