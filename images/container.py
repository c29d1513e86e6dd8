"""Runs an unpacked image the way a cluster would: its own user, no capabilities, a root that cannot be written.

Mounts, namespaces and the change of user are made with util-linux and coreutils, in this order and visible below: an OCI
runtime would do the same, and wants control groups, which not every machine that builds has to give. Needs root.
`python -m images.container FILE ARGUMENT...` runs the image's command with these arguments.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from images.archive import ImageArchive, read_archive

SETUP_SCRIPT = """
set -eu
root=$1
shift
ip link set lo up
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755,size=1m tmpfs "$root/dev"
for device in null zero full random urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,ro "$root/dev"
mount -t tmpfs -o nosuid,nodev,mode=1777,size=64m tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec env --ignore-environment --chdir=/ "$@"
"""
"""Everything that can be written in there afterwards is /tmp."""


class ImageContainer:
    """An image that lies unpacked in a folder, and can be run any number of times."""

    def __init__(self, archive: ImageArchive, root: Path) -> None:
        self.root = root
        root.chmod(0o755)  # a temporary folder is closed to others, and the image's user is another
        archive.unpack_layers(root)
        self._settings = archive.settings

    def run(
        self, *arguments: str, entrypoint: Sequence[str] | None = None, timeout_seconds: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One container, from start to end. As everywhere, an entry point of your own drops the image's arguments."""
        if entrypoint is None:
            entrypoint, arguments = self._settings["Entrypoint"], arguments or self._settings["Cmd"]
        command = [*entrypoint, *arguments]
        user = self._settings["User"]
        namespaces = ["unshare", "--mount", "--propagation=private", "--net", "--pid", "--ipc", "--uts"]
        return subprocess.run(  # noqa: S603 - no text of others in it
            [
                *(*namespaces, "--fork", "--kill-child", "sh", "-c", SETUP_SCRIPT, "sh", str(self.root)),
                *self._settings["Env"],
                *("setpriv", "--no-new-privs", "chroot", f"--userspec={user}", "--groups=", str(self.root)),
                *command,
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )


def main(path: Path, arguments: Sequence[str]) -> int:
    """The exit code of the command."""
    with tempfile.TemporaryDirectory() as folder:
        done = ImageContainer(read_archive(path), Path(folder)).run(*arguments)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
