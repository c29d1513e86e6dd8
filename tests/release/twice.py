"""`make release-twice VERSION=..`: the release again, from a clone with another path, umask, time zone and file times.

Every file must be what `make release` left in build/release/VERSION, but for the signature and its key: a signature has a
random number in it. Bases of the image are made again, too: the cache is a new one, so the Debian packages must be the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release.__main__ import BUNDLE, TRIAL_KEY
from release.checksums import compute_sha256
from release.programs import build_program

REPOSITORY = Path(__file__).parents[2]
SIGNATURE = {BUNDLE, f"{TRIAL_KEY}.pub", "cosign.pub"}
TIME_ZONE, UMASK = "Pacific/Kiritimati", 0o077
FILE_TIME = "2001-02-03T04:05:06"


def main(version: str, options: Sequence[str]) -> int:
    """The exit code: 0 when all digests are equal."""
    first = REPOSITORY / "build/release" / version
    with tempfile.TemporaryDirectory(prefix="another place ") as folder:
        clone, second = Path(folder) / "a longer name/of the clone", Path(folder) / "out"
        os.umask(UMASK)
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
        subprocess.run(
            [
                "find",
                clone,
                "-path",
                "*/.git",
                "-prune",
                "-o",
                "-type",
                "f",
                "-exec",
                "touch",
                "-d",
                FILE_TIME,
                "{}",
                "+",
            ],
            check=True,
        )
        command = [sys.executable, "-m", "release", version, "--out", str(second), *options]
        environment = {**os.environ, "TZ": TIME_ZONE, "XDG_CACHE_HOME": str(create_cache(Path(folder)))}
        subprocess.run(command, cwd=clone, env=environment, check=True)
        digests = [
            {path.name: compute_sha256(path) for path in made.iterdir() if path.name not in SIGNATURE}
            for made in (first, second / version)
        ]
    different = sorted(name for name in digests[0] | digests[1] if digests[0].get(name) != digests[1].get(name))
    for name, digest in sorted(digests[1].items()):
        sys.stdout.write(f"{'DIFFERS' if name in different else 'equal'}  {digest}  {name}\n")
    return 1 if different else 0


def create_cache(folder: Path) -> Path:
    """A cache that has only syft and cosign, which are not part of what is compared."""
    programs = build_program("syft").parents[1]
    cache = folder / "cache"
    (cache / "vrampack").mkdir(parents=True)
    (cache / "vrampack" / programs.name).symlink_to(programs)
    return cache


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
