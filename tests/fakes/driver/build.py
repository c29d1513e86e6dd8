"""Compiles the driver and its users with the machine's own gcc, once per source: `python -m tests.fakes.driver.build FOLDER`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.build_cache import build_once, fingerprint_of

SERVER = Path(__file__).parent / "server"
PROGRAMS = Path(__file__).parent / "programs"
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wconversion",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
)
GUARDS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
CALLS = ("rm.c", "start.c")
APP = ("app.c", *CALLS)
SMI = ("smi.c", *CALLS)
RACE = ("race.c", *CALLS)
EXPORT = ("export.c", *CALLS)
REQUEST = ("request.c", *CALLS)
RING = ("ring.c", *CALLS)
STATIC = {
    "app": "app.c",
    "nvidia-smi": "smi.c",
    "race": "race.c",
    "steps": "steps.c",
    "stress": "stress.c",
    "malformed": "malformed.c",
    "cost": "cost.c",
    "ring": "ring.c",
    "hostile": "hostile.c",
    "export": "export.c",
    "swap": "swap.c",
    "channels": "channels.c",
}
"""What a machine without a C library can run, by the names it has there."""


@dataclass(frozen=True, slots=True)
class FakeDriverPrograms:
    """One folder of programs. The static ones also run where there is no C library, or another one."""

    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / "fake-driver"

    @property
    def sanitized_server(self) -> Path:
        return self.folder / "fake-driver-sanitized"

    @property
    def app(self) -> Path:
        return self.folder / "app"

    @property
    def static_app(self) -> Path:
        return self.folder / "app-static"

    @property
    def smi(self) -> Path:
        return self.folder / "nvidia-smi"

    @property
    def export(self) -> Path:
        return self.folder / "export"

    @property
    def request(self) -> Path:
        return self.folder / "request"

    @property
    def race(self) -> Path:
        return self.folder / "race"

    @property
    def ring(self) -> Path:
        return self.folder / "ring"

    @property
    def static_smi(self) -> Path:
        return self.folder / "nvidia-smi-static"


def build_fake_driver(folder: Path) -> FakeDriverPrograms:
    """All of them, in a folder below `folder` that is made once per source."""
    return FakeDriverPrograms(
        build_once(folder / f"driver-{_fingerprint()}", lambda fresh: _compile_all(FakeDriverPrograms(fresh)))
    )


def build_callers(folder: Path) -> FakeDriverPrograms:
    """Only those that a machine with a real driver needs."""
    return FakeDriverPrograms(
        build_once(folder / f"callers-{_fingerprint()}", lambda fresh: _compile_callers(FakeDriverPrograms(fresh)))
    )


def build_static(folder: Path) -> Path:
    """The folder of all programs in `STATIC`, below `folder`, made once per source."""
    return build_once(folder / f"static-{_fingerprint()}", _compile_static)


def build_server(into: Path, *, sources: Path = SERVER, flags: Sequence[str] = ()) -> None:
    """Only the driver, perhaps from changed sources."""
    _compile(into, sorted(sources.glob("*.c")), ("-O2", "-pthread", *flags))


def altered_sources(folder: Path, changes: Mapping[str, tuple[str, str]]) -> Path:
    """A copy of the driver's sources with one text replaced in each of the named files."""
    folder.mkdir(parents=True)
    for source in SERVER.iterdir():
        text = source.read_text()
        if source.name in changes:
            old, new = changes[source.name]
            if old not in text:
                raise ValueError(f"{source.name} has no {old!r} to change")
            text = text.replace(old, new)
        (folder / source.name).write_text(text)
    return folder


def _compile_all(built: FakeDriverPrograms) -> None:
    build_server(built.server)
    build_server(built.sanitized_server, flags=GUARDS)
    app, smi, race, ring = ([PROGRAMS / name for name in names] for names in (APP, SMI, RACE, RING))
    _compile_callers(built)
    _compile(built.static_app, app, ("-O2", "-static"))
    _compile(built.smi, smi, ("-O2",))
    _compile(built.race, race, ("-O2",))
    _compile(built.ring, ring, ("-O2",))
    _compile(built.static_smi, smi, ("-O2", "-static"))


def _compile_callers(built: FakeDriverPrograms) -> None:
    _compile(built.app, [PROGRAMS / name for name in APP], ("-O2",))
    _compile(built.request, [PROGRAMS / name for name in REQUEST], ("-O2",))
    _compile(built.export, [PROGRAMS / name for name in EXPORT], ("-O2", "-pthread"))


def _compile_static(folder: Path) -> None:
    for name, source in STATIC.items():
        sources = [PROGRAMS / each for each in (source, *CALLS)]
        _compile(folder / name, sources, ("-O2", "-static", "-pthread"))


def _compile(into: Path, sources: Sequence[Path], flags: Sequence[str]) -> None:
    subprocess.run(["gcc", *FLAGS, *flags, "-o", str(into), *map(str, sources)], check=True, timeout=100)


def _fingerprint() -> str:
    return fingerprint_of(*sorted([*SERVER.iterdir(), *PROGRAMS.iterdir(), Path(__file__)]))


if __name__ == "__main__":
    sys.stdout.write(f"{build_fake_driver(Path(sys.argv[1])).folder}\n")
