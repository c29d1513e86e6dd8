"""The first process of every machine: static, and built once per source."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fakes.driver.build import FLAGS
from tests.support.build_cache import build_once, fingerprint_of

SOURCES = Path(__file__).parent / "guest"
BUILT = Path(__file__).parents[2] / "build"


def build_init() -> Path:
    made_of = fingerprint_of(*sorted([*SOURCES.iterdir(), Path(__file__)]))
    return build_once(BUILT / f"guest-{made_of}", lambda fresh: _compile(fresh / "init")) / "init"


def _compile(into: Path) -> None:
    sources = sorted(map(str, SOURCES.glob("*.c")))
    subprocess.run(["gcc", *FLAGS, "-O1", "-static", "-s", "-o", str(into), *sources], check=True, timeout=100)
